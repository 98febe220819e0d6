"""How clients built on `mcp` 2 come to be told of exactly the given URIs, in both eras."""

from contextlib import AsyncExitStack, asynccontextmanager

import anyio
from library import LIST_CHANGED, MODERN, subscriber
from mcp.client.subscriptions import ResourceUpdated


@asynccontextmanager
async def follower(session, listen, news):
    """Gives `follow`.

    In the modern era a subscription is a stream, which the next one replaces. It is the stream that tells:
    the client's message handler would hear the same once more, and later.
    """
    if session.protocol_version != MODERN:
        yield subscriber(session.subscribe_resource, session.unsubscribe_resource)
        return

    async def tell(subscription):
        async for event in subscription:
            news.tell(event.uri if isinstance(event, ResourceUpdated) else LIST_CHANGED)

    async with anyio.create_task_group() as tasks, AsyncExitStack() as stream:

        async def follow(uris):
            await stream.aclose()
            listening = listen(resources_list_changed=True, resource_subscriptions=uris)
            subscription = await stream.enter_async_context(listening)
            tasks.start_soon(tell, subscription)
            return subscription.honored.resource_subscriptions or []

        yield follow
