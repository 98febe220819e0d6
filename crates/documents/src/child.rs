//! The code that runs in the child process of an extraction: the protocol, and the limits that the process sets for
//! itself.
//!
//! The program that embeds this crate starts itself as the child, with an argument that it chooses. In the child, it
//! calls [`run`]. The request is a line of JSON followed by the document. The response is a line of JSON; if a member or
//! an image was requested, its bytes follow. The parent keeps the child's standard input open until the child has ended:
//! end of file means that the parent has ended, and the child exits.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::archive::{self, Member};
use crate::extract::{self, ExtractFailure, ExtractOptions};
use crate::{ArchiveFormat, ExtractedText, ExtractionLimits, PageImage, PageRendering, render};

/// The exit code of a child that could not be set up, because the system lacked threads or memory at that time. Another
/// attempt may succeed. It is `EX_TEMPFAIL` of `sysexits.h`; a panic ends with another code.
pub(crate) const NOT_SET_UP: u8 = 75;

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
    /// Render a page of a PDF.
    Image(PageRendering),
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
    /// The properties of the image that follows the response, as PNG.
    Image(PageImage),
    /// The members of an archive.
    Members(Vec<Member>),
    /// The size in bytes of the member whose contents follow the response.
    Member(u64),
    /// The text or the list of members exceeds the limit of its size.
    TooLong,
    /// The extraction failed.
    Failed(ExtractFailure),
}

/// Handles one request on standard input and output: sets the limits of this process, reads the document, and writes the
/// response. The process exits early if its parent ends. Returns the exit code, with which the process must end: the
/// parent tells a failure of the system by it from a crash.
pub fn run() -> ExitCode {
    let mut input = BufReader::new(io::stdin());
    // An error means that the parent has ended or does not follow the protocol.
    let Ok((request, data)) = receive(&mut input) else { return ExitCode::FAILURE };
    if let Err(cause) = exit_with_parent(input) {
        let _ = writeln!(io::stderr(), "{cause}");
        return ExitCode::from(NOT_SET_UP);
    }
    match respond(&request, data, io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Reads the request, sets its limits, and reads the document.
fn receive(input: &mut impl BufRead) -> io::Result<(ChildRequest, Vec<u8>)> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let request: ChildRequest = serde_json::from_str(&line)?;
    set_limits(&request.limits);
    let mut data = Vec::with_capacity(usize::try_from(request.size).unwrap_or_default());
    input.by_ref().take(request.size).read_to_end(&mut data)?;
    if data.len() as u64 != request.size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((request, data))
}

/// Starts a thread that ends this process at the end of `input`. A killed parent cannot end its children, but the kernel
/// closes its pipes.
fn exit_with_parent(mut input: impl Read + Send + 'static) -> io::Result<()> {
    // The stack counts against the memory limit, so the default of 2 MiB would be a waste.
    const STACK: usize = 64 * 1024;
    let watch = move || {
        let _ = io::copy(&mut input, &mut io::sink());
        std::process::exit(1);
    };
    std::thread::Builder::new().stack_size(STACK).spawn(watch).map(drop)
}

fn respond(request: &ChildRequest, data: Vec<u8>, mut output: impl Write) -> io::Result<()> {
    let mut contents = Vec::new();
    let limits = &request.limits;
    let response = match &request.work {
        ChildWork::Text(options) => extract::extract(&data, *options, limits).map(ChildResponse::Text),
        ChildWork::Image(rendering) => render::render(data, *rendering).map(|(image, png)| {
            contents = png;
            ChildResponse::Image(image)
        }),
        ChildWork::Members(format) => archive::members(&data, *format, limits).map(ChildResponse::Members),
        ChildWork::Member(format, path) => archive::member(&data, *format, path, limits).map(|member| {
            contents = member;
            ChildResponse::Member(contents.len() as u64)
        }),
    };
    let mut response = response.unwrap_or_else(ChildResponse::Failed);
    // The parent checks the limit too, but would first have to receive as much as it allows.
    if matches!(response, ChildResponse::Text(_) | ChildResponse::Members(_))
        && json_size(&response)? > limits.text
    {
        response = ChildResponse::TooLong;
    }
    serde_json::to_writer(&mut output, &response)?;
    output.write_all(b"\n")?;
    output.write_all(&contents)?;
    output.flush()
}

/// The size of a response as JSON.
fn json_size(response: &ChildResponse) -> io::Result<u64> {
    struct Counter(u64);
    impl Write for Counter {
        fn write(&mut self, data: &[u8]) -> io::Result<usize> {
            self.0 += data.len() as u64;
            Ok(data.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    serde_json::to_writer(&mut counter, response)?;
    Ok(counter.0)
}

/// Limits the memory and the processor time of this process, and forbids it to write files or core dumps. If the
/// system refuses a limit, the extraction runs without it; the parent process enforces the wall time in any case.
fn set_limits(limits: &ExtractionLimits) {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let set_both = |resource: Resource, soft: u64, hard: u64| {
            let _ = setrlimit(resource, Rlimit { current: Some(soft), maximum: Some(hard) });
        };
        let set = |resource: Resource, most: u64| set_both(resource, most, most);
        // `RLIMIT_DATA` limits private writable memory. `RLIMIT_AS` would also count address space that allocators
        // only reserve.
        #[cfg(target_os = "linux")]
        set(Resource::Data, limits.memory);
        // The kernel ends the process with SIGXCPU at the soft limit. At the hard limit it would send SIGKILL, which
        // the parent could not tell from the out-of-memory killer.
        let seconds = limits.cpu.as_secs().max(1);
        set_both(Resource::Cpu, seconds, seconds + 1);
        set(Resource::Fsize, 0);
        set(Resource::Core, 0);
        set(Resource::Nofile, 16);
    }
    #[cfg(not(unix))]
    let _ = limits;
}
