//! The child process of an extraction: its protocol, and the limits that it sets for itself.
//!
//! The program that embeds this crate starts itself as the child, with an argument of its own, and calls [`run`] there.
//! The request is a line of JSON, followed by the document; the response is a line of JSON, followed by the contents of
//! a member.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde::{Deserialize, Serialize};

use crate::archive::{self, Member};
use crate::extract::{self, ExtractFailure, ExtractOptions};
use crate::{ArchiveFormat, ExtractedText, ExtractionLimits};

/// What a child process is asked to do.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ChildRequest {
    /// The limits.
    pub limits: ExtractionLimits,
    /// The size of the document in bytes, which follows the request.
    pub size: u64,
    /// The work.
    pub work: ChildWork,
}

/// The work of a child process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChildWork {
    /// Extract the text.
    Text(ExtractOptions),
    /// List the members of an archive.
    Members(ArchiveFormat),
    /// Extract a member of an archive.
    Member(ArchiveFormat, String),
}

/// The answer of a child process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChildResponse {
    /// The text.
    Text(ExtractedText),
    /// The members of an archive.
    Members(Vec<Member>),
    /// The size of a member, whose contents follow.
    Member(u64),
    /// The document has no text.
    Failed(ExtractFailure),
}

/// Handles one request: sets the limits of this process, reads the document, and writes the response. An error means
/// that the parent process is gone or does not follow the protocol.
pub fn run(input: impl Read, mut output: impl Write) -> io::Result<()> {
    let mut input = BufReader::new(input);
    let mut line = String::new();
    input.read_line(&mut line)?;
    let request: ChildRequest = serde_json::from_str(&line)?;
    set_limits(&request.limits);
    let mut data = Vec::with_capacity(usize::try_from(request.size).unwrap_or_default());
    input.read_to_end(&mut data)?;
    drop(input);
    if data.len() as u64 != request.size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut contents = Vec::new();
    let limits = &request.limits;
    let response = match &request.work {
        ChildWork::Text(options) => extract::extract(&data, *options, limits).map(ChildResponse::Text),
        ChildWork::Members(format) => archive::members(&data, *format, limits).map(ChildResponse::Members),
        ChildWork::Member(format, path) => archive::member(&data, *format, path, limits).map(|member| {
            contents = member;
            ChildResponse::Member(contents.len() as u64)
        }),
    };
    let response = response.unwrap_or_else(ChildResponse::Failed);
    serde_json::to_writer(&mut output, &response)?;
    output.write_all(b"\n")?;
    output.write_all(&contents)?;
    output.flush()
}

/// Limits the memory and the processor time of this process, and forbids it to write files or to leave core dumps. A
/// limit that the system refuses is not an error: the parent process limits the time too.
fn set_limits(limits: &ExtractionLimits) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let set = |resource: Resource, most: u64| {
            let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
        };
        // The size of private writable memory. The address space is no measure: allocators reserve more than they use.
        #[cfg(target_os = "linux")]
        set(Resource::Data, limits.memory);
        // The system ends the process with SIGXCPU.
        set(Resource::Cpu, limits.cpu.as_secs().max(1));
        set(Resource::Fsize, 0);
        set(Resource::Core, 0);
        set(Resource::Nofile, 16);
    }
    #[cfg(not(unix))]
    let _ = limits;
}
