//! Two callers, and what they may see.

use std::sync::{Arc, Mutex};

use libris::wire::{Caller, Refusal};
use libris::{Authenticate, Identified, Identity, Operation, Policy, Rights, Rules, Uri};

use crate::random::Random;
use crate::rules;
use crate::shelf::{Predicate, Seen, Universe};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    A,
    B,
    C,
    /// Sees what A does.
    Anonymous,
}

impl Who {
    /// The value of the `Authorization` header.
    pub(crate) fn authorization(self) -> Option<&'static str> {
        match self {
            Self::A => Some("as A"),
            Self::B => Some("as B"),
            Self::C => Some("as C"),
            Self::Anonymous => None,
        }
    }

    pub(crate) fn identity(self) -> Option<Identity> {
        self.authorization().map(|text| Identity::new(&text[3..]))
    }
}

/// What a predicate shows, as rules.
struct Shown {
    predicate: Predicate,
    seen: Arc<Seen>,
}

impl Rules for Shown {
    /// About the URI alone: that a part is hidden with its whole is left to the view.
    fn allow(&self, _: Operation, uri: &Uri) -> bool {
        // Whether a caller has tools is tested with rules.
        uri.as_str().starts_with("libris://tools/") || self.predicate.shows(uri)
    }

    fn may_allow_below(&self, prefix: &str) -> bool {
        self.seen.has_below(prefix)
    }
}

/// What one of them may see, as rights and as a set.
#[derive(Clone)]
pub(crate) struct Sight {
    pub(crate) predicate: Predicate,
    pub(crate) seen: Arc<Seen>,
    pub(crate) rights: Rights,
}

impl Sight {
    pub(crate) fn new(universe: &Universe, predicate: Predicate, random: &mut Random) -> Self {
        let seen = Arc::new(Seen::new(universe, predicate));
        let rights = match predicate {
            Predicate::Everything if random.chance(50) => Rights::everything(),
            Predicate::Rules(seed) => rules::rights(&rules::simple(seed)),
            _ => Rights::new(Shown { predicate, seen: seen.clone() }),
        };
        Self { predicate, seen, rights }
    }

    /// What A and B may see, which is sometimes the same.
    pub(crate) fn pair(universe: &Universe, random: &mut Random) -> [Self; 2] {
        let first = Predicate::random(random);
        let a = Self::new(universe, first, random);
        let b = match random.chance(30) {
            true => a.clone(),
            false => {
                let second = Predicate::random(random);
                Self::new(universe, second, random)
            }
        };
        [a, b]
    }
}

/// Tells callers apart by `Authorization: as NAME`.
pub(crate) struct People {
    /// The rights of A and of B.
    rights: Mutex<[Rights; 2]>,
    open: bool,
}

impl People {
    pub(crate) fn new([a, b]: &[Sight; 2]) -> Arc<Self> {
        let rights = [a.rights.clone(), b.rights.clone()];
        Arc::new(Self { rights: Mutex::new(rights), open: false })
    }

    /// Changes the rights, as if identities were revoked: nothing tells the server.
    pub(crate) fn change(&self, [a, b]: &[Sight; 2]) {
        *self.rights.lock().unwrap() = [a.rights.clone(), b.rights.clone()];
    }

    /// Everybody sees everything.
    pub(crate) fn open() -> Arc<Self> {
        let rights = [Rights::everything(), Rights::everything()];
        Arc::new(Self { rights: Mutex::new(rights), open: true })
    }
}

impl Authenticate for People {
    fn identify(&self, caller: &Caller<'_>) -> Identified {
        match caller.authorization.map(|text| text.strip_prefix(b"as ")) {
            None => Identified::Caller(None),
            Some(Some(b"A")) => Identified::Caller(Some(Identity::new("A"))),
            Some(Some(b"B")) => Identified::Caller(Some(Identity::new("B"))),
            Some(_) => {
                let message = "nobody of that name is known".to_owned();
                Identified::Refused(Refusal::Unauthenticated { challenge: "Test".into(), message })
            }
        }
    }
}

impl Policy for People {
    fn authentication(&self) -> &dyn Authenticate {
        self
    }

    fn rights(&self, identity: Option<&Identity>) -> Rights {
        let [a, b] = &*self.rights.lock().unwrap();
        match identity.map(Identity::name) {
            None | Some("A") => a.clone(),
            Some(_) => b.clone(),
        }
    }

    fn is_open(&self) -> bool {
        self.open
    }
}
