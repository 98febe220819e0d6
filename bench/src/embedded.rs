//! A server that embeds Libris as a library, with a policy that distinguishes callers.

use std::path::Path;

use anyhow::Result;
use libris::wire::{Caller, Refusal};
use libris::{Authenticate, Identified, Identity, Operation, Policy, Rights, Rules, Uri};
use libris_sources::{Files, files};

use crate::mcp::Sender;

/// Serves the files of a folder on a free port of this machine, until it is killed.
///
/// It refuses requests of the other kind of sender, so that a benchmark cannot confuse the two.
pub(crate) async fn over_http(folder: &Path, sender: Sender) -> Result<()> {
    let files = Files::open(files::Config::new(folder))?;
    let identified = Rights::new(Below(files.root().to_string()));
    Ok(libris::serve(files).policy(BearerNames { sender, identified }).http("127.0.0.1:0").await?)
}

/// Uses the bearer token as the name of the caller. All identified callers share one rights class; anonymous callers see
/// everything, so that no rules are checked for them.
struct BearerNames {
    sender: Sender,
    identified: Rights,
}

impl Authenticate for BearerNames {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        let token = caller.authorization.and_then(|value| value.strip_prefix(b"Bearer "));
        let name = token.and_then(|token| str::from_utf8(token).ok());
        if name.is_some() != (self.sender != Sender::Anonymous) {
            let message = format!("only requests of the sender `{:?}` are expected", self.sender);
            return Identified::Refused(Refusal::Forbidden { challenge: None, message });
        }
        Identified::Caller(name.map(Identity::new))
    }
}

impl Policy for BearerNames {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        match identity {
            Some(_) => self.identified.clone(),
            None => Rights::everything(),
        }
    }
}

/// Allows the resources whose URIs begin with this prefix.
struct Below(String);

impl Rules for Below {
    fn allow(&self, _operation: Operation, uri: &Uri) -> bool {
        uri.as_str().starts_with(&self.0)
    }

    fn may_allow_below(&self, prefix: &str) -> bool {
        prefix.starts_with(&self.0) || self.0.starts_with(prefix)
    }
}
