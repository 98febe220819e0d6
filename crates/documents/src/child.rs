//! The code that runs in the child process of an extraction: the protocol, and the limits that the process sets for
//! itself.
//!
//! The program that embeds this crate starts itself as the child, with an argument that it chooses. In the child, it
//! calls [`run`]. The request is a line of JSON followed by the document. The response is a line of JSON; if a member
//! was requested, its contents follow.

use std::io::{self, BufRead, BufReader, Read, Write};

use serde::{Deserialize, Serialize};

use crate::archive::{self, Member};
use crate::extract::{self, ExtractFailure, ExtractOptions};
use crate::{ArchiveFormat, ExtractedText, ExtractionLimits};

/// The request to a child process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ChildRequest {
    /// The limits that the process sets for itself.
    pub limits: ExtractionLimits,
    /// The size in bytes of the document that follows the request.
    pub size: u64,
    /// What to extract.
    pub work: ChildWork,
}

/// What a child process extracts.
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

/// The response of a child process.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChildResponse {
    /// The text.
    Text(ExtractedText),
    /// The members of an archive.
    Members(Vec<Member>),
    /// The size in bytes of the member whose contents follow the response.
    Member(u64),
    /// The extraction failed.
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

/// Limits the memory and the processor time of this process, and forbids it to write files or core dumps. If the
/// system refuses a limit, the extraction runs without it; the parent process enforces the wall time in any case.
fn set_limits(limits: &ExtractionLimits) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let set = |resource: Resource, most: u64| {
            let _ = setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) });
        };
        // `RLIMIT_DATA` limits private writable memory. `RLIMIT_AS` would also count address space that allocators
        // only reserve.
        #[cfg(target_os = "linux")]
        set(Resource::Data, limits.memory);
        // The kernel ends the process with SIGXCPU or SIGKILL.
        set(Resource::Cpu, limits.cpu.as_secs().max(1));
        set(Resource::Fsize, 0);
        set(Resource::Core, 0);
        set(Resource::Nofile, 16);
    }
    #[cfg(not(unix))]
    let _ = limits;
}
