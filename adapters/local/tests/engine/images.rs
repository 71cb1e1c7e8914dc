//! Images become bases.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command as Process;

use sandbox_bench_local::engine::{Base, Command, Engine, EngineError, Imported, SandboxConfig, User};
use sha2::{Digest, Sha256};

use crate::support::{Bench, bench, config, run, scratch, sh};

/// What a layer holds.
enum Member<'a> {
    File(&'a str, u32, u64, &'a [u8]),
    Link(&'a str, &'a str),
    Dir(&'a str),
    Device(&'a str),
}
use Member::{Device, Dir, File as Plain, Link};

fn layer(members: &[Member]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for member in members {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        match member {
            Plain(name, mode, owner, bytes) => {
                header.set_mode(*mode);
                header.set_uid(*owner);
                header.set_gid(*owner);
                header.set_size(bytes.len() as u64);
                builder.append_data(&mut header, name, *bytes).unwrap();
            }
            Link(name, target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_size(0);
                builder.append_link(&mut header, name, target).unwrap();
            }
            Dir(name) => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                header.set_size(0);
                builder.append_data(&mut header, name, &[][..]).unwrap();
            }
            Device(name) => {
                header.set_entry_type(tar::EntryType::Char);
                header.set_size(0);
                builder.append_data(&mut header, name, &[][..]).unwrap();
            }
        }
    }
    builder.into_inner().unwrap()
}

/// A program without needs: a static one would be better, but a host without any has the dynamic ones we copy.
fn userland() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut wanted = vec!["/bin/sh".to_owned(), "/bin/ls".into(), "/bin/cat".into(), "/usr/bin/id".into()];
    for program in wanted.clone() {
        let output = Process::new("ldd").arg(&program).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        wanted.extend(text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned));
    }
    wanted.sort();
    wanted.dedup();
    for path in wanted {
        files.push((path.trim_start_matches('/').to_owned(), fs::read(&path).unwrap()));
    }
    files
}

fn layers() -> [Vec<u8>; 2] {
    let files = userland();
    let mut first: Vec<Member> = files.iter().map(|(name, bytes)| Plain(name, 0o755, 0, bytes)).collect();
    first.extend([
        Plain("etc/passwd", 0o644, 0, b"root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n"),
        Plain("home/agent/mine", 0o600, 1000, b"agent's"),
        Plain("gone/file", 0o644, 0, b"x"),
        Plain("opaque/old", 0o644, 0, b"x"),
        Plain("replaced", 0o644, 0, b"file"),
        Plain("app/motd", 0o644, 0, b"first"),
        Link("absolute", "/app"),
        Device("dev/thing"),
    ]);
    let second = [
        Plain(".wh.gone", 0o644, 0, b""),
        Plain("opaque/new", 0o644, 0, b"y"),
        Plain("opaque/.wh..wh..opq", 0o644, 0, b""),
        Dir("replaced/"),
        Plain("replaced/inside", 0o644, 0, b"z"),
        Plain("absolute/second", 0o644, 0, b"through the link"),
        Plain("app/motd", 0o644, 0, b"second"),
    ];
    [layer(&first), layer(&second)]
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn image_config(layers: &[Vec<u8>]) -> String {
    let diff_ids: Vec<String> = layers.iter().map(|layer| format!("\"sha256:{}\"", hex(layer))).collect();
    format!(
        r#"{{"architecture":"any","os":"linux","config":{{"Env":["PATH=/bin:/usr/bin","COLOUR=blue"],
        "WorkingDir":"/app","User":"agent"}},"rootfs":{{"type":"layers","diff_ids":[{}]}}}}"#,
        diff_ids.join(",")
    )
}

/// Writes an OCI layout; one layer gzip, one zstd.
fn oci_layout(dir: &Path) {
    let layers = layers();
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let store = |bytes: &[u8]| {
        fs::write(blobs.join(hex(bytes)), bytes).unwrap();
        format!("\"digest\":\"sha256:{}\",\"size\":{}", hex(bytes), bytes.len())
    };
    let config = store(image_config(&layers).as_bytes());
    let packed = [gzip(&layers[0]), zstd::encode_all(layers[1].as_slice(), 1).unwrap()];
    let stored: Vec<String> = packed.iter().map(|layer| format!("{{{}}}", store(layer))).collect();
    let manifest = format!(r#"{{"schemaVersion":2,"config":{{{config}}},"layers":[{}]}}"#, stored.join(","));
    let manifest = store(manifest.as_bytes());
    fs::write(dir.join("index.json"), format!(r#"{{"schemaVersion":2,"manifests":[{{{manifest}}}]}}"#)).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
}

/// What `docker save` of an engine before 25 writes.
fn saved_archive(path: &Path) {
    let layers = layers();
    let config = image_config(&layers);
    let mut builder = tar::Builder::new(File::create(path).unwrap());
    let mut add = |name: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, name, bytes).unwrap();
    };
    add("config.json", config.as_bytes());
    add("a/layer.tar", &layers[0]);
    add("b/layer.tar", &layers[1]);
    add("manifest.json", br#"[{"Config":"config.json","RepoTags":["x:1"],"Layers":["a/layer.tar","b/layer.tar"]}]"#);
    builder.finish().unwrap();
}

async fn check(bench: &Bench, image: &Imported) {
    let based = SandboxConfig { base: Base::Rootfs(image.rootfs.clone()), env: image.config.env.clone(), ..config() };
    let sandbox = bench.engine.create(based).await.unwrap();
    let seen = sh(&sandbox, "ls /gone /dev/thing; ls /opaque /replaced; cat /app/motd /app/second").await;
    assert_eq!(seen, "/opaque:\nnew\n\n/replaced:\ninside\nsecondthrough the link", "whiteouts and replacements");
    if bench.engine.facts().non_root_user() {
        let user = User::Name("agent".into());
        let (_, stdout, stderr) =
            run(&sandbox, Command { user, ..Command::shell("id -u; cat ~/mine; echo $COLOUR") }).await;
        assert!(stdout.starts_with("1000\nagent's"), "{stdout}{stderr}");
    }
    bench.engine.destroy(&sandbox.id()).await.unwrap();
}

#[tokio::test]
async fn layouts_and_saved_archives_give_the_same_root() {
    let bench = bench().await;
    let dir = scratch();
    let (layout, saved, packed) =
        (dir.path().join("layout"), dir.path().join("saved.tar"), dir.path().join("saved.tar.gz"));
    fs::create_dir(&layout).unwrap();
    oci_layout(&layout);
    saved_archive(&saved);
    fs::write(&packed, gzip(&fs::read(&saved).unwrap())).unwrap();
    let archived = dir.path().join("layout.tar");
    let mut builder = tar::Builder::new(File::create(&archived).unwrap());
    builder.append_dir_all("", &layout).unwrap();
    builder.finish().unwrap();
    for source in [&layout, &saved, &packed, &archived] {
        let image = bench.engine.import(source).await.unwrap();
        assert!(!image.cached && image.identity.starts_with("sha256:"), "{image:?}");
        assert_eq!(image.config.workdir.as_deref(), Some("/app"));
        assert_eq!(image.config.user.as_deref(), Some("agent"));
        assert_eq!(image.config.env["COLOUR"], "blue");
        check(&bench, &image).await;
        assert!(bench.engine.import(source).await.unwrap().cached);
    }
    bench.close().await;
}

#[tokio::test]
async fn an_exported_root_and_a_root_directory_are_bases() {
    let bench = bench().await;
    let dir = scratch();
    let exported = dir.path().join("export.tar");
    fs::write(&exported, &layers()[0]).unwrap();
    let image = bench.engine.import(&exported).await.unwrap();
    let in_place = bench.engine.import(&image.rootfs).await.unwrap();
    assert!(in_place.cached && in_place.rootfs == image.rootfs);
    let based = SandboxConfig { base: Base::Rootfs(in_place.rootfs), ..config() };
    let sandbox = bench.engine.create(based).await.unwrap();
    assert_eq!(sh(&sandbox, "cat /app/motd; echo mine > /app/motd; cat /app/motd").await, "firstmine\n");
    assert_eq!(fs::read_to_string(image.rootfs.join("app/motd")).unwrap(), "first");
    bench.close().await;
}

async fn refused(engine: &Engine, source: &Path) -> String {
    match engine.import(source).await {
        Err(EngineError::Image { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn damaged_and_hostile_images_are_refused_and_leave_nothing() {
    let bench = bench().await;
    let dir = scratch();
    let source = |name: &str| dir.path().join(name);
    // A layer whose bytes are not those of its name.
    let layout = source("layout");
    fs::create_dir(&layout).unwrap();
    oci_layout(&layout);
    let largest = fs::read_dir(layout.join("blobs/sha256")).unwrap().map(|e| e.unwrap().path());
    let largest = largest.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = fs::read(&largest).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&largest, bytes).unwrap();
    assert!(!refused(&bench.engine, &layout).await.is_empty());
    // Members that would land outside.
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o644);
    header.as_old_mut().name[..12].copy_from_slice(b"../../escape");
    header.set_cksum();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append(&header, &b"x"[..]).unwrap();
    fs::write(source("climbing.tar"), builder.into_inner().unwrap()).unwrap();
    assert!(refused(&bench.engine, &source("climbing.tar")).await.contains("leaves the image"));
    // A link out of the image leads to the image's own root.
    let target = dir.path().join("outside");
    fs::create_dir(&target).unwrap();
    let through = format!("link{}", target.display());
    fs::write(source("link.tar"), layer(&[Link("link", "/"), Plain(&format!("{through}/escaped"), 0o644, 0, b"x")]))
        .unwrap();
    bench.engine.import(&source("link.tar")).await.unwrap();
    assert!(fs::read_dir(&target).unwrap().next().is_none());
    // Not images at all.
    fs::write(source("noise"), vec![0x5a; 10_000]).unwrap();
    fs::write(source("cut.gz"), &gzip(&layers()[0])[..1000]).unwrap();
    for name in ["noise", "cut.gz", "absent"] {
        refused(&bench.engine, &source(name)).await;
    }
    let drafts = fs::read_dir(bench.dir.path().join("bases")).unwrap().flatten();
    assert_eq!(drafts.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')).count(), 0);
    bench.close().await;
}
