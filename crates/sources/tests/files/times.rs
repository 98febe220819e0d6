//! Extreme modification times.

use std::fs;
use std::time::{Duration, SystemTime};

use libris_core::{Context, Source as _, Uri};
use libris_sources::{Files, files};
use rustix::fs::{CWD, Timespec, Timestamps, UTIME_OMIT, statat, utimensat};

#[tokio::test]
async fn extreme_modification_times_are_served() {
    // tmpfs stores every time; other file systems have limits.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for (name, seconds) in [("a", i64::MIN), ("b", i64::MAX), ("c", -1), ("d", i64::MIN + 1), ("e", 0)] {
        let path = folder.path().join(name);
        fs::write(&path, name).unwrap();
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let times = Timestamps { last_access, last_modification: Timespec { tv_sec: seconds, tv_nsec: 0 } };
        utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
        let set = statat(CWD, &path, rustix::fs::AtFlags::empty()).unwrap().st_mtime;
        assert_eq!(set, seconds, "{name}");
    }
    let config =
        files::Config { path: folder.path().into(), mount: Some("root".into()), ..Default::default() };
    let files = Files::open(config).unwrap();
    let listed = files.list(None, 10, &Context::default()).await.unwrap().resources;
    let times: Vec<_> = listed[1..]
        .iter()
        .map(|file| (file.name.as_str(), file.annotations.last_modified.map(SystemTime::from)))
        .collect();
    let epoch = SystemTime::UNIX_EPOCH;
    let known = [("c", Some(epoch - Duration::from_secs(1))), ("d", None), ("e", Some(epoch))];
    assert_eq!(times, [[("a", None), ("b", None)].as_slice(), &known].concat());
    for name in ["a", "b", "c", "d", "e"] {
        for _ in 0..2 {
            let uri = Uri::parse(&format!("file:///root/{name}")).unwrap();
            assert_eq!(files.read(&uri, &Context::default()).await.unwrap().parts[0].body.len(), 1);
        }
    }
}
