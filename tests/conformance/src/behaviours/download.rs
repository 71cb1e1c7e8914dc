//! Taking files out: exactly what is there, bounded, and nothing left on the host after an error.

use std::time::Duration;

use sandbox_bench_core::ExecSpec;

use super::upload::{noise, same_tree, varied};
use crate::check::{Check, refused, same};
use crate::ensure;
use crate::harness::Harness;
use crate::tree::{Node, Tree};

pub async fn a_tree_comes_back_as_it_went_in(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.put_tree(&s, "/conformance/tree", &varied()).await?;
    let deep = "d".repeat(90);
    let expected = varied().dir(&deep, 0o755).dir(&format!("{deep}/{deep}"), 0o755);
    let expected = expected.dir(&format!("{deep}/{deep}/{deep}"), 0o755).below("tree");
    same_tree(&h.get(&s, "/conformance/tree").await?, &expected)
}

pub async fn a_single_file_is_named_by_its_last_component(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(
        &s,
        "mkdir -p /conformance/dir && printf made > '/conformance/dir/a file' && chmod 750 '/conformance/dir/a file'",
    )
    .await?;
    let expected = Tree::default().file("a file", 0o750, "made");
    same_tree(&h.get(&s, "/conformance/dir/a file").await?, &expected)?;
    let directory = h.get(&s, "/conformance/dir").await?;
    same_tree(&directory, &expected.below("dir"))
}

pub async fn a_large_file_comes_back_whole(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.put(&s, "/conformance/large", noise(20 << 20)).await?;
    let tree = h.get(&s, "/conformance/large").await?;
    let whole = matches!(tree.0.get("large"), Some(Node::File(_, content)) if *content == noise(20 << 20));
    ensure!(whole, "20 MiB came back changed");
    Ok(())
}

pub async fn what_is_missing_is_not_found(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    for missing in ["/no/such/file", "/etc/passwd/below-a-file"] {
        let to = h.host_path();
        std::fs::write(&to, "an older download")?;
        let result = s.download(&h.call(), missing, &to, 1 << 20).await;
        refused(missing, result, &["not_found"])?;
        ensure!(!to.exists(), "a file was left on the host for {missing}");
    }
    for bad in ["relative", ""] {
        let result = s.download(&h.call(), bad, &h.host_path(), 1 << 20).await;
        refused(&format!("the path {bad:?}"), result, &["invalid_request"])?;
    }
    Ok(())
}

pub async fn a_download_over_its_limit_leaves_no_file(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "mkdir /conformance && head -c 3000000 /dev/zero > /conformance/big").await?;
    for from in ["/conformance/big", "/conformance"] {
        let to = h.host_path();
        std::fs::write(&to, "an older download")?;
        refused("a download over its limit", s.download(&h.call(), from, &to, 1_000_000).await, &["invalid_request"])?;
        ensure!(!to.exists(), "the file of a failed download was left on the host");
    }
    let to = h.host_path();
    std::fs::write(&to, noise(5_000_000))?;
    s.download(&h.call(), "/conformance/big", &to, 4_000_000).await?;
    let expected = Tree::default().file("big", 0o644, vec![0; 3_000_000]);
    same_tree(&Tree::read(&to)?, &expected)
}

pub async fn special_files_do_not_block(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    h.sh(&s, "mkdir /conformance && mkfifo /conformance/fifo && echo plain > /conformance/plain").await?;
    let limit = h.pace.soon;
    let got = tokio::time::timeout(limit, h.get(&s, "/conformance")).await;
    let Ok(got) = got else {
        return Err(crate::Stop::Failed(format!("a directory with a fifo was not downloaded within {limit:?}")));
    };
    same("the file beside the fifo", got?.0.remove("conformance/plain"), Some(Node::File(0o644, b"plain\n".to_vec())))
}

pub async fn files_that_grow_or_vanish_are_survived(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let busy = "mkdir /conformance; cd /conformance; echo x > stays; echo started
                while :; do echo more >> grows; : > comes; rm -f comes; done";
    let call = h.call();
    let sink = crate::harness::Collected::default();
    let spec = ExecSpec::sh(busy).timeout(Duration::from_secs(20));
    let cancel = tokio_util::sync::CancellationToken::new();
    let running = call.with_cancel(cancel.clone());
    let (ran, downloads) = tokio::join!(h.exec_into(&running, &s, &spec, &sink), async {
        sink.shows("started", h.pace.soon).await?;
        for _ in 0..5 {
            let to = h.host_path();
            // An error is an honest answer; a broken tar file is not.
            if s.download(&call, "/conformance", &to, 64 << 20).await.is_ok() {
                let tree = Tree::read(&to)?;
                ensure!(tree.0.contains_key("conformance/stays"), "a file that does not change is missing");
            }
        }
        cancel.cancel();
        Ok(())
    });
    cancel.cancel();
    downloads?;
    ran.map(drop)
}
