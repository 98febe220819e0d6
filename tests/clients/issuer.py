"""A small authorization server on this machine: the OAuth endpoints of the Python SDK, and tokens that are JWTs."""

import json
import secrets
import socket
import threading
import time
from contextlib import contextmanager

import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from mcp.server.auth.provider import AuthorizationCode, RefreshToken, construct_redirect_uri
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.shared.auth import OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

SCOPES = ["docs:read", "docs:secret"]


class Issuer:
    """Grants every request of its only user, `ada`, except the scopes in `withheld`."""

    def __init__(self, url: str):
        self.url = url
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.clients, self.codes, self.refreshes = {}, {}, {}
        self.asked = []
        self.withheld = set()
        self.lifetime = 3600

    async def get_client(self, client_id):
        return self.clients.get(client_id)

    async def register_client(self, client):
        # A client may ask for more scopes later.
        self.clients[client.client_id] = client.model_copy(update={"scope": " ".join(SCOPES)})

    async def authorize(self, client, params):
        self.asked.append((sorted(params.scopes or []), params.resource))
        code = AuthorizationCode(
            code=secrets.token_urlsafe(32),
            scopes=[scope for scope in params.scopes or [] if scope not in self.withheld],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject="ada",
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(self, client, code):
        return self.codes.get(code)

    async def exchange_authorization_code(self, client, code):
        del self.codes[code.code]
        return self.tokens(client.client_id, code.scopes, code.resource)

    async def load_refresh_token(self, client, token):
        return self.refreshes.get(token)

    async def exchange_refresh_token(self, client, token, scopes):
        del self.refreshes[token.token]
        return self.tokens(client.client_id, scopes or token.scopes, token.resource)

    async def load_access_token(self, token):
        return None

    async def revoke_token(self, token):
        pass

    def tokens(self, client_id, scopes, resource) -> OAuthToken:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "sub": "ada",
            "aud": resource,
            "client_id": client_id,
            "iat": now,
            "exp": now + self.lifetime,
            "jti": secrets.token_hex(8),
            "scope": " ".join(scopes),
        }
        access = jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "one", "typ": "at+jwt"})
        refresh = RefreshToken(
            token=secrets.token_urlsafe(32), client_id=client_id, scopes=scopes, resource=resource, subject="ada"
        )
        self.refreshes[refresh.token] = refresh
        return OAuthToken(
            access_token=access, expires_in=self.lifetime, scope=" ".join(scopes), refresh_token=refresh.token
        )

    async def jwks(self, request):
        public = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return JSONResponse({"keys": [{**public, "kid": "one", "use": "sig", "alg": "ES256"}]})


@contextmanager
def running_issuer():
    """Starts an issuer on a free port; it stops with the block."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        issuer = Issuer(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        registration = ClientRegistrationOptions(enabled=True, valid_scopes=SCOPES)
        routes = create_auth_routes(issuer, AnyHttpUrl(issuer.url), client_registration_options=registration)
        app = Starlette(routes=[*routes, Route("/jwks", issuer.jwks)])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield issuer
        finally:
            server.should_exit = True
            thread.join()
