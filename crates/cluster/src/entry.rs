//! Encodes the entries of the Redis stream: changes of sources, and subscriptions and ends of sessions. Parses their ids.

use libris::cluster::ChangePosition;
use libris::{Change, Uri};

/// The id of an entry: the Unix time of Redis in milliseconds, and a sequence number within the millisecond.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(crate) milliseconds: u64,
    number: u64,
}

impl EntryId {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (milliseconds, number) = text.split_once('-')?;
        Some(Self { milliseconds: milliseconds.parse().ok()?, number: number.parse().ok()? })
    }

    pub(crate) fn at(milliseconds: u64) -> Self {
        Self { milliseconds, number: 0 }
    }
}

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.milliseconds, self.number)
    }
}

impl From<EntryId> for ChangePosition {
    fn from(EntryId { milliseconds, number }: EntryId) -> Self {
        Self { milliseconds, number }
    }
}

/// One message, which is one line of a stream entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StreamMessage {
    Change(Change),
    /// A client subscribed in this session to this URI.
    Subscribed {
        session: String,
        uri: String,
    },
    Unsubscribed {
        session: String,
        uri: String,
    },
    /// A client ended this session.
    Ended {
        session: String,
    },
}

impl StreamMessage {
    /// Encodes the message as a line; `None` if it contains a line break.
    pub(crate) fn encode(&self) -> Option<String> {
        let line = match self {
            Self::Change(Change::Updated(uri)) => format!("U{uri}"),
            Self::Change(Change::Described(uri)) => format!("D{uri}"),
            Self::Change(Change::Added(uri)) => format!("A{uri}"),
            Self::Change(Change::Removed(uri)) => format!("R{uri}"),
            Self::Change(Change::Features) => "F".to_owned(),
            Self::Change(_) => "L".to_owned(),
            Self::Subscribed { session, uri } => format!("+{session} {uri}"),
            Self::Unsubscribed { session, uri } => format!("-{session} {uri}"),
            Self::Ended { session } => format!("x{session}"),
        };
        (!line.contains('\n')).then_some(line)
    }

    /// Decodes a line; `None` if this version of Libris does not know its kind.
    fn decode(line: &str) -> Option<Self> {
        let rest = line.get(1..)?;
        let uri = || Uri::parse(rest).ok();
        let of_session = || {
            let (session, uri) = rest.split_once(' ')?;
            Some((session.to_owned(), uri.to_owned()))
        };
        Some(match line.as_bytes()[0] {
            b'U' => Self::Change(Change::Updated(uri()?)),
            b'D' => Self::Change(Change::Described(uri()?)),
            b'A' => Self::Change(Change::Added(uri()?)),
            b'R' => Self::Change(Change::Removed(uri()?)),
            b'F' => Self::Change(Change::Features),
            b'L' => Self::Change(Change::Lost),
            b'+' => of_session().map(|(session, uri)| Self::Subscribed { session, uri })?,
            b'-' => of_session().map(|(session, uri)| Self::Unsubscribed { session, uri })?,
            b'x' => Self::Ended { session: rest.to_owned() },
            _ => return None,
        })
    }
}

/// The messages of an entry. An unknown line, which another version of Libris may have written, is decoded as
/// [`Change::Lost`].
pub(crate) fn decode(data: &str) -> Vec<StreamMessage> {
    let lines = data.lines().filter(|line| !line.is_empty());
    lines.map(|line| StreamMessage::decode(line).unwrap_or(StreamMessage::Change(Change::Lost))).collect()
}

#[cfg(test)]
mod tests {
    use super::{StreamMessage, decode};
    use libris::{Change, Uri};

    #[test]
    fn messages_survive_encoding() {
        let uri = Uri::parse("file:///docs/a%20b.md?x=1#y").unwrap();
        let session = "0123456789abcdef".to_owned();
        let messages = [
            StreamMessage::Change(Change::Updated(uri.clone())),
            StreamMessage::Change(Change::Described(uri.clone())),
            StreamMessage::Change(Change::Added(uri.clone())),
            StreamMessage::Change(Change::Removed(uri)),
            StreamMessage::Change(Change::Features),
            StreamMessage::Change(Change::Lost),
            StreamMessage::Subscribed { session: session.clone(), uri: "a:b c".to_owned() },
            StreamMessage::Unsubscribed { session: session.clone(), uri: "a:é".to_owned() },
            StreamMessage::Ended { session },
        ];
        let lines: Vec<_> = messages.iter().map(|message| message.encode().unwrap()).collect();
        assert_eq!(decode(&lines.join("\n")), messages);
    }

    #[test]
    fn a_line_break_cannot_be_smuggled_in() {
        let message = StreamMessage::Subscribed { session: "1".to_owned(), uri: "a:\nL".to_owned() };
        assert_eq!(message.encode(), None);
    }

    #[test]
    fn unknown_lines_count_as_lost_changes() {
        for line in ["?", "U", "+nothing", "é", "Unot a uri"] {
            assert_eq!(decode(line), [StreamMessage::Change(Change::Lost)], "{line:?}");
        }
        assert_eq!(decode(""), []);
    }
}
