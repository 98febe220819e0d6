//! The WebDAV share over HTTP: names, bytes, conditions, refusals, credentials, and when it is served.

#![cfg(feature = "picker")]

mod process;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use process::HttpServer;
use reqwest::{Client, Method, RequestBuilder, Response};

/// Every kind of local source, and a rule that hides a folder and a table.
fn furnished(more: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let docs = folder.path().join("docs");
    std::fs::create_dir_all(docs.join("secret")).unwrap();
    std::fs::create_dir_all(docs.join("deep/er")).unwrap();
    std::fs::write(docs.join("start.md"), "# Start\n").unwrap();
    std::fs::write(docs.join("LICENSE"), "Do as you like.\n").unwrap();
    std::fs::write(docs.join("a b & <c>%.txt"), "odd\n").unwrap();
    std::fs::write(docs.join("中文.md"), "# 中文\n").unwrap();
    std::fs::write(docs.join("marked.txt"), "\u{feff}with a mark\n").unwrap();
    std::fs::write(docs.join("bytes.bin"), [0, 1, 2, 255]).unwrap();
    std::fs::write(docs.join("deep/er/file.txt"), "deep\n").unwrap();
    std::fs::write(docs.join("secret/plan.md"), "# Plan\n").unwrap();
    let large: Vec<u8> =
        (0..9_500_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(docs.join("large.bin"), large).unwrap();
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/shop.db"),
        folder.path().join("shop.db"),
    )
    .unwrap();
    let config = format!(
        "{more}\n[[files]]\npath = \"docs\"\n[[sql]]\nurl = \"sqlite:shop.db\"\n\
         [[inline.resource]]\nuri = \"config://app/settings\"\nmime = \"application/json\"\ntext = '{{}}'\n\
         [[inline.resource]]\nuri = \"config://app/settings.json\"\nmime = \"application/json\"\ntext = '[]'\n\
         [[inline.resource]]\nuri = \"config://app/plain\"\nmime = \"text/plain\"\ntext = 'plain'\n\
         [[inline.resource]]\nuri = \"config://app/plain.json\"\nmime = \"application/json\"\ntext = '1'\n\
         [[inline.resource]]\nuri = \"note:one\"\ntext = 'a note'\n\
         [[rule]]\nuri = \"file:///docs/secret/**\"\naction = \"deny\"\n\
         [[rule]]\nuri = \"sqlite://shop/orders/**\"\naction = \"deny\"\n\
         [[rule]]\nuri = \"**\"\naction = \"allow\"\n"
    );
    std::fs::write(folder.path().join("libris.toml"), config).unwrap();
    folder
}

/// The share of a server.
struct TestShare {
    _server: HttpServer,
    origin: String,
    key: Option<String>,
}

impl TestShare {
    async fn serve(folder: &Path, more: &[&str]) -> Self {
        let config = folder.join("libris.toml");
        let mut arguments = vec![OsStr::new("--config"), config.as_os_str()];
        arguments.extend(more.iter().map(OsStr::new));
        let server = HttpServer::start(&arguments).await;
        let origin = server.url.strip_suffix("/mcp").unwrap().to_owned();
        Self { _server: server, origin, key: None }
    }

    fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let request = Client::new().request(method, format!("{}/dav{path}", self.origin));
        match &self.key {
            Some(key) => request.basic_auth("anybody", Some(key)),
            None => request,
        }
    }

    async fn get(&self, path: &str) -> Response {
        self.request("GET", path).send().await.unwrap()
    }

    async fn status(&self, method: &str, path: &str) -> u16 {
        self.request(method, path).send().await.unwrap().status().as_u16()
    }

    async fn bytes(&self, path: &str) -> Vec<u8> {
        let response = self.get(path).await;
        assert_eq!(response.status().as_u16(), 200, "{path}");
        response.bytes().await.unwrap().to_vec()
    }

    /// The entries of a folder: the path of each, as it is addressed, with its size.
    async fn list(&self, path: &str) -> BTreeMap<String, Option<u64>> {
        let response = self.request("PROPFIND", path).header("depth", "1").send().await.unwrap();
        assert_eq!(response.status().as_u16(), 207, "{path}");
        let xml = response.text().await.unwrap();
        assert!(xml.ends_with("</D:multistatus>\n"), "{xml}");
        let between = |text: &str, start: &str, end: &str| {
            let (_, rest) = text.split_once(start)?;
            Some(rest.split_once(end)?.0.to_owned())
        };
        let entries = xml.split("<D:response>").skip(2).map(|entry| {
            let href = between(entry, "<D:href>", "</D:href>").unwrap();
            let size = between(entry, "<D:getcontentlength>", "</D:getcontentlength>");
            (href.strip_prefix("/dav").unwrap().to_owned(), size.map(|size| size.parse().unwrap()))
        });
        entries.collect()
    }

    async fn names(&self, path: &str) -> Vec<String> {
        let parent = if path.ends_with('/') { path.to_owned() } else { format!("{path}/") };
        self.list(path)
            .await
            .into_keys()
            .map(|entry| entry.strip_prefix(&parent).unwrap().to_owned())
            .collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_source_is_a_folder_and_every_size_is_right() {
    let folder = furnished("");
    let share = TestShare::serve(folder.path(), &[]).await;
    assert_eq!(share.names("").await, ["config/", "file/", "libris/", "note/", "sqlite/"]);
    assert_eq!(share.names("/file/docs").await.len(), 8);
    let mut pending = vec!["/".to_owned()];
    let mut files = Vec::new();
    while let Some(path) = pending.pop() {
        for (entry, size) in share.list(&path).await {
            if entry.ends_with('/') {
                pending.push(entry);
                continue;
            }
            let bytes = share.bytes(&entry).await;
            assert_eq!(size, Some(bytes.len() as u64), "{entry}");
            files.push(entry);
        }
    }
    for wanted in [
        "/config/app/settings.json",
        "/config/app/settings%252Ejson",
        "/file/docs/LICENSE",
        "/file/docs/a%20b%20%26%20%3Cc%3E%2525.txt",
        "/file/docs/%E4%B8%AD%E6%96%87.md",
        "/file/docs/deep/er/file.txt",
        "/note/%253aone.txt",
        "/sqlite/shop/schema.md",
        "/sqlite/shop/users/schema.md",
        "/sqlite/shop/users/rows.json",
        "/sqlite/shop/users/rows/1.json",
    ] {
        assert!(files.iter().any(|file| file == wanted), "{wanted} is not among {files:#?}");
    }
    assert!(!files.iter().any(|file| file.contains("secret") || file.contains("orders")), "{files:#?}");
    let docs = folder.path().join("docs");
    for (path, file) in
        [("LICENSE", "LICENSE"), ("bytes.bin", "bytes.bin"), ("%E4%B8%AD%E6%96%87.md", "中文.md")]
    {
        assert_eq!(share.bytes(&format!("/file/docs/{path}")).await, std::fs::read(docs.join(file)).unwrap());
    }
    // As in `resources/read`, a byte order mark is no part of the text.
    assert_eq!(share.bytes("/file/docs/marked.txt").await, b"with a mark\n");
    assert_eq!(share.bytes("/config/app/settings.json").await, b"{}");
    assert_eq!(share.bytes("/config/app/settings%252Ejson").await, b"[]");
    assert_eq!(share.bytes("/note/%253aone.txt").await, b"a note");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_hidden_looks_missing() {
    let folder = furnished("");
    let share = TestShare::serve(folder.path(), &[]).await;
    let mut answers = Vec::new();
    for path in [
        "/file/docs/secret/plan.md",
        "/file/docs/secret/none.md",
        "/sqlite/shop/orders/rows/1.json",
        "/none/x",
    ] {
        let response = share.get(path).await;
        answers.push((response.status().as_u16(), response.text().await.unwrap()));
        let found = share.request("PROPFIND", path).header("depth", "0").send().await.unwrap();
        assert_eq!(found.status().as_u16(), 404, "{path}");
    }
    assert!(answers.iter().all(|answer| *answer == (404, "nothing is here\n".to_owned())), "{answers:?}");
    for path in ["/file/docs/secret/", "/file/docs/secret", "/sqlite/shop/orders/", "/file/docs/../docs/none"]
    {
        let found = share.request("PROPFIND", path).header("depth", "1").send().await.unwrap();
        assert_eq!(found.status().as_u16(), 404, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_cannot_be_written() {
    let folder = furnished("");
    let share = TestShare::serve(folder.path(), &[]).await;
    for method in ["PUT", "DELETE", "COPY", "MOVE", "PROPPATCH", "LOCK", "UNLOCK", "POST", "PATCH"] {
        let response = share.request(method, "/file/docs/start.md").body("x").send().await.unwrap();
        assert_eq!(
            (response.status().as_u16(), response.headers()["allow"].to_str().unwrap()),
            (405, "OPTIONS, GET, HEAD, PROPFIND")
        );
    }
    let folder = share.request("MKCOL", "/file/docs/made").send().await.unwrap();
    assert_eq!(folder.status().as_u16(), 403, "405 would mean that it exists");
    assert_eq!(share.bytes("/file/docs/start.md").await, b"# Start\n");
    let options = share.request("OPTIONS", "/").send().await.unwrap();
    assert_eq!((options.status().as_u16(), &options.headers()["dav"]), (200, &"1".parse().unwrap()));
    for depth in [None, Some("infinity")] {
        let mut request = share.request("PROPFIND", "/");
        if let Some(depth) = depth {
            request = request.header("depth", depth);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 403);
        assert!(response.text().await.unwrap().contains("<D:propfind-finite-depth/>"));
    }
    let malformed = share.request("PROPFIND", "/").header("depth", "0").body("<x").send().await.unwrap();
    assert_eq!(malformed.status().as_u16(), 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_conditions_and_large_files() {
    let folder = furnished("");
    let share = TestShare::serve(folder.path(), &[]).await;
    let large = std::fs::read(folder.path().join("docs/large.bin")).unwrap();
    assert!(share.bytes("/file/docs/large.bin").await == large);
    for (path, whole) in [("/file/docs/large.bin", &large[..]), ("/file/docs/start.md", b"# Start\n")] {
        let size = whole.len();
        for (range, first, last) in [
            ("bytes=2-5".to_owned(), 2, 5),
            (format!("bytes={}-", size - 3), size - 3, size - 1),
            ("bytes=-4".to_owned(), size - 4, size - 1),
        ] {
            let response = share.request("GET", path).header("range", range).send().await.unwrap();
            assert_eq!(response.status().as_u16(), 206);
            assert_eq!(response.headers()["content-range"], format!("bytes {first}-{last}/{size}"));
            assert_eq!(response.bytes().await.unwrap(), whole[first..=last]);
        }
        let beyond =
            share.request("GET", path).header("range", format!("bytes={size}-")).send().await.unwrap();
        assert_eq!(beyond.status().as_u16(), 416);
        assert_eq!(beyond.headers()["content-range"], format!("bytes */{size}"));
        let head = share.request("HEAD", path).send().await.unwrap();
        assert_eq!(
            (head.status().as_u16(), head.headers()["content-length"].to_str().unwrap()),
            (200, &*size.to_string())
        );
    }
    let first = share.get("/file/docs/start.md").await;
    assert_eq!(first.headers()["content-type"], "text/markdown; charset=utf-8");
    for (name, value) in [
        ("content-security-policy", "sandbox; default-src 'none'"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("cache-control", "private, no-cache"),
    ] {
        assert_eq!(first.headers()[name], value, "{name}");
    }
    for (condition, value) in [("if-none-match", "etag"), ("if-modified-since", "last-modified")] {
        let known = first.headers()[value].clone();
        let again =
            share.request("GET", "/file/docs/start.md").header(condition, known).send().await.unwrap();
        assert_eq!(again.status().as_u16(), 304, "{condition}");
    }
    // The tag of another file does not match.
    let other = share.get("/file/docs/LICENSE").await.headers()["etag"].clone();
    let changed = share.request("GET", "/file/docs/start.md").header("if-none-match", &other);
    assert_eq!(changed.send().await.unwrap().status().as_u16(), 200);
    let failed = share.request("GET", "/file/docs/start.md").header("if-match", &other);
    assert_eq!(failed.send().await.unwrap().status().as_u16(), 412);
    assert_eq!(share.status("GET", "/file/docs/start.md/").await, 404, "a file is no folder");
    // A name with an extension is not that of a resource of another type.
    assert_eq!(share.bytes("/config/app/plain.json").await, b"1");
    assert_eq!(share.bytes("/config/app/plain.txt").await, b"plain");
    let script =
        share.request("GET", "/file/docs/start.md").header("sec-fetch-dest", "script").send().await.unwrap();
    assert_eq!(script.status().as_u16(), 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_while_it_is_sent_is_cut_short() {
    const SIZE: usize = 32 << 20;
    let folder = furnished("");
    let path = folder.path().join("docs/large.bin");
    std::fs::write(&path, vec![0xff; SIZE]).unwrap();
    let share = TestShare::serve(folder.path(), &[]).await;
    let mut response = share.get("/file/docs/large.bin").await;
    let mut received = response.chunk().await.unwrap().unwrap().len();
    // The rest does not fit into the buffers of the connection, so that it is not read yet.
    let changed = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(changed).unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let asked = share.request("PROPFIND", "/file/docs/large.bin").header("depth", "0");
        let xml = asked.send().await.unwrap().text().await.unwrap();
        if xml.contains("Sun, 09 Sep 2001 01:46:40 GMT") {
            break;
        }
        assert!(std::time::Instant::now() < end, "{xml}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    while let Ok(Some(chunk)) = response.chunk().await {
        received += chunk.len();
    }
    assert!(received > 0 && received < SIZE, "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_says_that_entries_may_be_missing() {
    // Nobody listens on this port any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let failing = format!(
        "[[http]]\nname = \"weather\"\nbase = \"http://127.0.0.1:{port}\"\nlimits = {{ allow_private = true }}\n\
         [[http.template]]\nuri = \"weather://station/{{id}}\"\nurl = \"stations/{{id}}\"\n\
         list = {{ url = \"stations\", values = {{ id = \"\" }} }}\n"
    );
    for (more, is_complete) in [("", true), (&*failing, false)] {
        let folder = furnished(more);
        let share = TestShare::serve(folder.path(), &[]).await;
        let listed = share.request("PROPFIND", "/").header("depth", "1").send().await.unwrap();
        let xml = listed.text().await.unwrap();
        assert!(xml.contains("<D:href>/dav/file/</D:href>"), "{xml}");
        assert_eq!(
            !xml.contains("Some sources did not respond; entries may be missing."),
            is_complete,
            "{xml}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_fails_is_no_missing_file() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let folder = furnished(&format!(
        "[[http]]\nname = \"weather\"\nbase = \"http://127.0.0.1:{port}\"\nlimits = {{ allow_private = true }}\n\
         [[http.template]]\nuri = \"weather://station/{{id}}\"\nurl = \"stations/{{id}}\"\n"
    ));
    let share = TestShare::serve(folder.path(), &[]).await;
    assert_eq!(share.status("GET", "/weather/station/7").await, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_folder_is_listed_page_by_page() {
    const COUNT: usize = 1_203;
    let folder = furnished("");
    let wide = folder.path().join("docs/wide");
    std::fs::create_dir(&wide).unwrap();
    for number in 0..COUNT {
        std::fs::write(wide.join(format!("note-{number:04}.txt")), "\u{feff}x").unwrap();
    }
    let share = TestShare::serve(folder.path(), &[]).await;
    let listed = share.request("PROPFIND", "/file/docs/wide/").header("depth", "1").send().await.unwrap();
    let xml = listed.text().await.unwrap();
    assert_eq!(xml.matches("<D:response>").count(), COUNT + 1);
    let listed = share.list("/file/docs/wide/").await;
    assert_eq!(listed.len(), COUNT);
    for (number, (path, size)) in listed.into_iter().enumerate() {
        assert_eq!(path, format!("/file/docs/wide/note-{number:04}.txt"));
        // Each of the two responses read 200 texts for their size without the byte order mark; the second one knew the
        // sizes that the first one read.
        assert_eq!(size, Some(if number < 400 { 1 } else { 4 }), "{path}");
    }
    // A page ends after 256 KiB, even in the middle of a page of the list.
    let namespace = "x".repeat(140);
    let long = format!(
        "<propfind xmlns=\"DAV:\"><prop>{}</prop></propfind>",
        format!("<c xmlns=\"{namespace}\"/>").repeat(29)
    );
    let asked = share.request("PROPFIND", "/file/docs/wide/").header("depth", "1").body(long).send().await;
    let xml = asked.unwrap().text().await.unwrap();
    assert_eq!(xml.matches("<D:response>").count(), COUNT + 1);
    assert_eq!(xml.matches(&*namespace).count(), (COUNT + 1) * 29);
    assert!(xml.ends_with("</D:multistatus>\n"));
    let long = format!(
        "<propfind xmlns=\"DAV:\"><prop>{}</prop></propfind>",
        format!("<c xmlns=\"{namespace}\"/>").repeat(30)
    );
    let asked = share.request("PROPFIND", "/file/docs/wide/").header("depth", "1").body(long).send().await;
    assert_eq!(asked.unwrap().status().as_u16(), 400);
    // Nothing is read for the size of files that nobody asks for.
    let only = "<propfind xmlns=\"DAV:\"><prop><displayname/><x:color xmlns:x=\"urn:x\"/></prop></propfind>";
    let asked = share.request("PROPFIND", "/file/docs/wide/").header("depth", "0").body(only).send().await;
    let xml = asked.unwrap().text().await.unwrap();
    assert!(
        xml.contains("<D:displayname>wide</D:displayname>") && xml.contains("<color xmlns=\"urn:x\"/>"),
        "{xml}"
    );
    assert_eq!(xml.matches("<D:response>").count(), 1, "{xml}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_the_password_here_and_nowhere_else() {
    let folder = furnished("");
    let keys = folder.path().join("keys.toml");
    let keys = keys.to_str().unwrap();
    let added =
        Command::new(env!("CARGO_BIN_EXE_libris")).args(["key", "add", "ci", "--keys", keys]).output();
    let key = String::from_utf8(added.unwrap().stdout).unwrap().trim().to_owned();
    let mut share = TestShare::serve(folder.path(), &["--keys", keys]).await;
    for path in ["/", "/file/docs/start.md", "/file/docs/none.md"] {
        let refused = share.get(path).await;
        assert_eq!(refused.status().as_u16(), 401);
        assert_eq!(refused.headers()["www-authenticate"], "Basic realm=\"libris\", charset=\"UTF-8\"");
        assert_eq!(refused.headers().get_all("www-authenticate").iter().count(), 1);
    }
    share.key = Some("wrong".to_owned());
    assert_eq!(share.status("GET", "/file/docs/start.md").await, 401);
    share.key = Some(key.clone());
    assert_eq!(share.bytes("/file/docs/start.md").await, b"# Start\n");
    assert_eq!(share.names("").await.len(), 5);
    let client = Client::new();
    let bearer =
        client.get(format!("{}/dav/file/docs/start.md", share.origin)).bearer_auth(&key).send().await;
    assert_eq!(bearer.unwrap().status().as_u16(), 200);
    // Every other path takes the key as a bearer token only.
    for path in ["/mcp", "/metrics", "/picker/preview", "/davx", "/dav%2F..%2Fmcp"] {
        let refused =
            client.post(format!("{}{path}", share.origin)).basic_auth("anybody", Some(&key)).body("{}");
        let refused = refused.send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 401, "{path}");
        assert!(refused.headers()["www-authenticate"].to_str().unwrap().starts_with("Bearer"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_share_is_served_where_the_picker_is() {
    for (config, arguments, status) in [
        ("", &[][..], 200),
        ("", &["--no-webdav"][..], 404),
        ("", &["--no-picker"][..], 404),
        ("[listen]\nwebdav = false\n", &[][..], 404),
        ("[listen]\nwebdav = true\n", &["--no-picker"][..], 200),
    ] {
        let folder = furnished(config);
        let share = TestShare::serve(folder.path(), arguments).await;
        assert_eq!(share.status("OPTIONS", "/").await, status, "{config} {arguments:?}");
    }
}
