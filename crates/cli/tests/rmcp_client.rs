//! The rmcp client reads a folder, over stdio and HTTP, in both eras.

mod process;

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use rmcp::model::{
    CallToolRequestParams, ErrorCode, PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams,
    ResourceContents,
};
use rmcp::service::RunningService;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt as _, RoleClient, ServiceError, ServiceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{HttpServer, serve};

mod samples {
    include!("samples/rust.rs");

    pub(crate) async fn without_key(endpoint: &str, uri: &str) -> String {
        read_without_key(endpoint, uri).await.unwrap()
    }

    /// What the program says if the variable with the key is missing.
    pub(crate) async fn with_key(endpoint: &str, uri: &str) -> String {
        read_with_key(endpoint, uri).await.unwrap_err().to_string()
    }
}

type Client = RunningService<RoleClient, ()>;

const ROOT: &str = "file:///library/";
const TEMPLATE: &str = "file:///library/{+path}{?lines,bytes}";
const FOLDERS: &str = "file:///library/{+folder}{?after,match,format,contents}";
const SEGMENTS: &str = "file:///library{/path*}";
const IMAGES: &str = "file:///library/{+path}?as=image{&pages,width}";
const TEXTS: &str = "file:///library/{+path}{?as,pages,sheet,rows,chapter,cells,mails,lines,content}";
const INTRO: &str = "line 1\nline 2\nline 3\nline 4\nline 5\n";
const PICTURE: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x01\x02\xfe\xff";
const ODD: &[&str] = &["with space.md", "books 📚.md", "100%.md", "#1.md", "why?.md"];

/// Creates a folder of three pages, with names that URIs escape. Returns its content.
fn library(root: &Path) -> BTreeSet<String> {
    let mut paths = BTreeSet::from([String::new()]);
    let mut put = |directory: &str, name: &str, content: &[u8]| {
        std::fs::create_dir_all(root.join(directory)).expect("a directory");
        std::fs::write(root.join(directory).join(name), content).expect("a file");
        paths.extend([format!("{directory}/"), format!("{directory}/{name}")]);
    };
    for n in 0..250 {
        put(&format!("chapter {}", n % 5), &format!("note-{n}.md"), b"note\n");
    }
    for name in ODD {
        put("odd", name, name.as_bytes());
    }
    put("guide", "intro.md", INTRO.as_bytes());
    put("guide", "picture.png", PICTURE);
    paths
}

async fn read(client: &Client, uri: &str) -> Result<Vec<ResourceContents>, ServiceError> {
    Ok(client.read_resource(ReadResourceRequestParams::new(uri)).await?.contents)
}

async fn text(client: &Client, path: &str) -> String {
    let contents = read(client, &format!("{ROOT}{path}")).await.expect("it reads");
    let [ResourceContents::TextResourceContents { text, .. }] = &contents[..] else {
        panic!("{path} is {contents:?}");
    };
    text.clone()
}

/// The structured result of a tool.
async fn call(client: &Client, name: &'static str, arguments: Value) -> Value {
    let arguments = arguments.as_object().expect("an object").clone();
    let params = CallToolRequestParams::new(name).with_arguments(arguments);
    let result = client.call_tool(params).await.expect("a result");
    assert_eq!(result.is_error, Some(false));
    result.structured_content.expect("structured content")
}

async fn visit(client: &Client, revision: &ProtocolVersion, paths: &BTreeSet<String>) {
    assert_eq!(client.peer_info().expect("it introduced itself").protocol_version, *revision);

    let mut listed = Vec::new();
    let mut cursor = None;
    let mut pages = 0;
    while pages == 0 || cursor.is_some() {
        let asked = PaginatedRequestParams::default().with_cursor(cursor);
        let page = client.list_resources(Some(asked)).await.expect("a page");
        listed.extend(page.resources);
        cursor = page.next_cursor;
        pages += 1;
    }
    let path = |uri: &str| {
        percent_decode_str(uri.strip_prefix(ROOT).expect("below the root"))
            .decode_utf8()
            .expect("text")
            .into_owned()
    };
    assert_eq!(pages, 3);
    assert_eq!(listed.pop().expect("the status").uri, "libris://status");
    assert_eq!(listed.pop().expect("the index").uri, "libris://index");
    assert_eq!(listed.len(), paths.len());
    assert_eq!(listed.iter().map(|resource| path(&resource.uri)).collect::<BTreeSet<_>>(), *paths);

    for name in ODD {
        let resource = listed.iter().find(|resource| resource.name == *name).expect("it is listed");
        let [ResourceContents::TextResourceContents { text, uri, .. }] =
            &read(client, &resource.uri).await.expect("it reads")[..]
        else {
            panic!("{name} is not text");
        };
        assert_eq!((text.as_str(), uri), (*name, &resource.uri));
    }
    assert_eq!(text(client, "guide/intro.md").await, INTRO);
    assert_eq!(text(client, "guide/intro.md?lines=2-4").await, "line 2\nline 3\nline 4\n");
    assert_eq!(text(client, "guide/intro.md?bytes=0-9").await, INTRO[..10]);

    let directory = read(client, &format!("{ROOT}guide/")).await.expect("it reads");
    let [ResourceContents::TextResourceContents { text: listing, .. }, ..] = &directory[..] else {
        panic!("the directory is {directory:?}");
    };
    assert!(listing.contains("[picture.png](file:///library/guide/picture.png)"), "{listing}");
    assert_eq!(directory.len(), 2);
    let picture = read(client, &format!("{ROOT}guide/picture.png")).await.expect("it reads");
    let [ResourceContents::BlobResourceContents { blob, mime_type, .. }] = &picture[..] else {
        panic!("the picture is {picture:?}");
    };
    assert_eq!(mime_type.as_deref(), Some("image/png"));
    assert_eq!(STANDARD.decode(blob).expect("base64"), PICTURE);

    let templates = client.list_all_resource_templates().await.expect("templates");
    assert_eq!(
        templates.iter().map(|template| template.uri_template.as_str()).collect::<Vec<_>>(),
        [FOLDERS, IMAGES, TEXTS, TEMPLATE, SEGMENTS, "libris://index{?below}", "libris://status{?as}"]
    );
    let completed = client.complete_resource_simple(TEMPLATE, "path", "gui").await.expect("a completion");
    assert_eq!(completed, ["guide/"]);

    let tools = client.list_all_tools().await.expect("tools");
    assert_eq!(
        tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(),
        ["search_resources", "read_resource", "list_resources"]
    );
    assert!(tools.iter().all(|tool| tool.output_schema.is_some() && tool.annotations.is_some()));
    let uri = format!("{ROOT}guide/intro.md");
    let found = call(client, "search_resources", json!({ "query": "intro" })).await;
    assert_eq!(found["results"][0]["uri"], uri.as_str());
    let read_part = call(client, "read_resource", json!({ "uri": uri, "lines": "2-3" })).await;
    assert_eq!(read_part["text"], "line 2\nline 3\n");
    let listed = call(client, "list_resources", json!({ "parent": format!("{ROOT}guide/") })).await;
    assert_eq!(listed["entries"][0]["uri"], uri.as_str());

    let missing = format!("{ROOT}guide/missing.md");
    let Err(ServiceError::McpError(error)) = read(client, &missing).await else { panic!("it was found") };
    let code =
        if revision.has_initialize() { ErrorCode::RESOURCE_NOT_FOUND } else { ErrorCode::INVALID_PARAMS };
    assert_eq!((error.code, &error.data.expect("data")["uri"]), (code, &missing.into()));
}

#[tokio::test]
async fn rmcp_finds_everything() {
    let home = TempDir::new().expect("a temporary folder");
    let root = home.path().join("library");
    let paths = library(&root);
    let server = HttpServer::start(&[root.as_os_str()]).await;
    let discover = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for (lifecycle, revision) in [
        (ClientLifecycleMode::Initialize, ProtocolVersion::V_2025_11_25),
        (discover, ProtocolVersion::V_2026_07_28),
    ] {
        let mut command = serve(&[root.as_os_str()]);
        command.arg("--stdio");
        let child = TokioChildProcess::new(command).expect("libris starts");
        let client = ().serve_with_lifecycle(child, lifecycle.clone()).await.expect("a connection");
        visit(&client, &revision, &paths).await;
        client.cancel().await.expect("a clean end");

        let http = StreamableHttpClientTransport::from_uri(server.url.as_str());
        let client = ().serve_with_lifecycle(http, lifecycle).await.expect("a connection");
        visit(&client, &revision, &paths).await;
        client.cancel().await.expect("a clean end");
    }
}

#[tokio::test]
async fn lines_of_a_resource_without_lines_are_cut_from_the_whole() {
    let database = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop.db");
    let mut command = serve(&[format!("sqlite:{}", database.display()).as_ref()]);
    command.arg("--stdio");
    let client =
        ().serve(TokioChildProcess::new(command).expect("libris starts")).await.expect("a connection");
    let uri = "sqlite://shop/items/schema";
    let whole = call(&client, "read_resource", json!({ "uri": uri })).await;
    let whole = whole["text"].as_str().expect("text");
    assert!(whole.contains("| position |"), "{whole}");
    let part = call(&client, "read_resource", json!({ "uri": uri, "lines": "5-6" })).await;
    let expected: String = whole.split_inclusive('\n').skip(4).take(2).collect();
    assert_eq!((part["text"].as_str(), part["lines"].as_str()), (Some(&*expected), Some("5-6")), "{part}");
    let arguments = json!({ "uri": "sqlite://shop/nothing/schema", "lines": "5-6" });
    let params = CallToolRequestParams::new("read_resource")
        .with_arguments(arguments.as_object().expect("an object").clone());
    let missing = client.call_tool(params).await.expect("a result");
    assert_eq!(missing.is_error, Some(true), "{missing:?}");
    client.cancel().await.expect("a clean end");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_that_the_picker_shows_read_a_resource() {
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    std::fs::create_dir(&docs).unwrap();
    std::fs::write(docs.join("start.md"), "the words that are read").unwrap();
    let server = HttpServer::start(&[docs.as_os_str()]).await;
    let uri = "file:///docs/start.md";
    assert!(samples::without_key(&server.url, uri).await.contains("the words that are read"));
    assert_eq!(samples::with_key(&server.url, uri).await, "environment variable not found");
}
