//! The `libris` command: parses the arguments, calls one function, and returns an exit code.

mod audit_log;
mod auth;
mod bench;
#[cfg(feature = "picker")]
mod browse;
#[cfg(any(feature = "picker", feature = "mcp"))]
mod browser;
#[cfg(feature = "search")]
mod bundle;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
mod complete;
mod completions;
mod config;
#[cfg(feature = "text-documents")]
mod documents;
mod explain;
mod highlight;
mod hosts;
mod info;
mod install;
mod key;
mod limits_config;
mod log;
#[cfg(feature = "mcp")]
mod login;
mod ls;
mod man;
mod pager;
mod prompts;
mod read;
mod recognise;
mod reload;
mod rule_config;
#[cfg(feature = "search")]
mod search;
mod serve;
mod shell_words;
#[cfg(feature = "skills")]
mod skills;
mod sources;
mod summary;
mod target;
mod templates;
mod terminal;
mod terminal_image;
mod tools_config;
#[cfg(feature = "postgres")]
mod triggers;
mod unopened;
mod watch;
mod word_completion;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The argument with which a server starts this program as its reaper: the process that kills the child processes of
/// the server after the server itself was killed.
#[cfg(all(any(feature = "command", feature = "mcp", feature = "text-documents"), unix))]
const REAPER_COMMAND: &str = "reap-commands";

/// glibc does not return freed memory to the system: after a burst of large responses, the resident set stays large.
/// mimalloc returns free pages within milliseconds. Version 3, because with version 2 a block that is freed by another
/// thread than the one that allocated it stays resident until the allocating thread allocates again: after 88 clients
/// disconnected without reading 8 MiB each, 818 MiB were resident; with version 3, at most 132.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Your data as MCP resources: point it at a folder or a database, and any MCP client can list, complete
/// and read it.
#[derive(Debug, Parser)]
#[command(name = "libris", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: log::LogOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::ServeOptions),
    #[cfg(feature = "picker")]
    Browse(browse::BrowseOptions),
    Check(check::CheckOptions),
    Key(key::KeyOptions),
    Explain(explain::ExplainOptions),
    Install(install::InstallOptions),
    #[cfg(feature = "mcp")]
    Login(login::LoginCommand),
    #[cfg(feature = "mcp")]
    Logout(login::LogoutCommand),
    Ls(ls::LsOptions),
    Read(read::ReadOptions),
    Templates(templates::TemplatesOptions),
    Complete(complete::CompleteOptions),
    Prompts(prompts::PromptsOptions),
    #[cfg(feature = "skills")]
    Skills(skills::SkillsOptions),
    Watch(watch::WatchOptions),
    Info(info::InfoOptions),
    Bench(bench::BenchOptions),
    #[cfg(feature = "search")]
    Search(search::SearchOptions),
    #[cfg(feature = "search")]
    Bundle(bundle::BundleOptions),
    #[cfg(feature = "postgres")]
    Triggers(triggers::TriggersOptions),
    Completions(completions::CompletionsOptions),
    Man(man::ManOptions),
}

fn main() -> ExitCode {
    // The following first arguments are not subcommands: only a server or a completion script starts the program with
    // them.
    #[cfg(all(any(feature = "command", feature = "mcp", feature = "text-documents"), unix))]
    if std::env::args_os().nth(1).is_some_and(|first| first == REAPER_COMMAND) {
        libris_process::reap(std::io::stdin().lock());
        return ExitCode::SUCCESS;
    }
    #[cfg(feature = "text-documents")]
    if std::env::args_os().nth(1).is_some_and(|first| first == documents::EXTRACT_COMMAND) {
        return libris_documents::child::run();
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == word_completion::COMPLETION_COMMAND) {
        return word_completion::run(std::env::args_os().skip(2));
    }
    let arguments = Arguments::parse();
    #[cfg(all(any(feature = "command", feature = "mcp", feature = "text-documents"), unix))]
    if let Some(reaper) = reaper() {
        libris_process::set_reaper(reaper);
    }
    let level = match arguments.command {
        // The report contains the warnings.
        Command::Check(_) => log::OFF,
        // These commands fail with the error of a source and print it, so a warning would only repeat the error.
        Command::Ls(_)
        | Command::Read(_)
        | Command::Templates(_)
        | Command::Complete(_)
        | Command::Prompts(_)
        | Command::Info(_) => "error",
        _ => "warn",
    };
    if let Err(error) = arguments.log.start(level) {
        return terminal::fail(&error);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => return terminal::fail(&anyhow::Error::new(cause).context("could not start")),
    };
    let outcome = runtime.block_on(async {
        match arguments.command {
            Command::Serve(options) => serve::run(options).await.map(|()| ExitCode::SUCCESS),
            #[cfg(feature = "picker")]
            Command::Browse(options) => browse::run(options).await.map(|()| ExitCode::SUCCESS),
            Command::Check(options) => check::run(options).await,
            Command::Key(options) => key::run(options).map(|()| ExitCode::SUCCESS),
            Command::Explain(options) => explain::run(options).map(|()| ExitCode::SUCCESS),
            Command::Install(options) => install::run(&options).map(|()| ExitCode::SUCCESS),
            #[cfg(feature = "mcp")]
            Command::Login(arguments) => target::exit_code(login::login(arguments).await),
            #[cfg(feature = "mcp")]
            Command::Logout(arguments) => target::exit_code(login::logout(&arguments)),
            Command::Ls(options) => target::exit_code(ls::run(options).await),
            Command::Read(options) => target::exit_code(read::run(options).await),
            Command::Templates(options) => target::exit_code(templates::run(options).await),
            Command::Complete(options) => target::exit_code(complete::run(options).await),
            Command::Prompts(options) => target::exit_code(prompts::run(options).await),
            #[cfg(feature = "skills")]
            Command::Skills(options) => target::exit_code(skills::run(options).await),
            Command::Watch(options) => target::exit_code(watch::run(options).await),
            Command::Info(options) => target::exit_code(info::run(options).await),
            Command::Bench(options) => target::exit_code(bench::run(options).await),
            #[cfg(feature = "search")]
            Command::Search(options) => target::exit_code(search::run(options).await),
            #[cfg(feature = "search")]
            Command::Bundle(options) => target::exit_code(bundle::run(options).await),
            #[cfg(feature = "postgres")]
            Command::Triggers(options) => triggers::run(options).await.map(|()| ExitCode::SUCCESS),
            Command::Completions(options) => completions::run(&options).map(|()| ExitCode::SUCCESS),
            Command::Man(options) => man::run(&options).map(|()| ExitCode::SUCCESS),
        }
    });
    #[cfg(all(any(feature = "command", feature = "mcp", feature = "text-documents"), unix))]
    libris_process::kill_all();
    // The process ends without a shutdown of the runtime: a blocking read of standard input cannot be interrupted, and the
    // thread of the search index would panic at its next timer.
    std::mem::forget(runtime);
    match outcome {
        Ok(code) => code,
        Err(error) => terminal::fail(&error),
    }
}

/// The command that starts this program as the reaper.
#[cfg(all(any(feature = "command", feature = "mcp", feature = "text-documents"), unix))]
fn reaper() -> Option<std::process::Command> {
    use std::os::unix::process::CommandExt as _;
    // After an upgrade, the path of the executable leads to another version; `/proc/self/exe` always leads to this one.
    let program = match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe().ok()?,
    };
    let mut command = std::process::Command::new(program);
    command.arg0("libris").arg(REAPER_COMMAND).env_clear().current_dir("/");
    Some(command)
}
