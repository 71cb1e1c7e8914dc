//! Output: complete, apart, bounded, and there while the command runs.

use std::time::Duration;

use sandbox_bench_core::{Completion, ExecSpec};

use crate::check::{Check, same};
use crate::ensure;
use crate::harness::{Collected, Harness};

pub async fn the_streams_are_apart(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let ran = h.exec(&s, &ExecSpec::sh("echo out; echo err >&2; echo out2")).await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if h.can().separate_streams {
        same("stdout", text(&ran.stdout), "out\nout2\n".into())?;
        return same("stderr", text(&ran.stderr), "err\n".into());
    }
    let both = text(&ran.stdout);
    ensure!(
        ["out\n", "err\n", "out2\n"].iter().all(|line| both.contains(line)),
        "both streams in stdout: got {both:?}"
    );
    same("stderr of a backend that cannot separate", ran.stderr.len(), 0)
}

pub async fn order_is_kept_within_each_stream(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let script = "i=0; while [ $i -lt 5000 ]; do echo $i; echo $i >&2; i=$((i+1)); done";
    let ran = h.exec(&s, &ExecSpec::sh(script)).await?;
    let expected: String = (0..5000).map(|i| format!("{i}\n")).collect();
    if h.can().separate_streams {
        same("5000 numbered lines on stdout", String::from_utf8_lossy(&ran.stdout).into_owned(), expected.clone())?;
        return same("5000 numbered lines on stderr", String::from_utf8_lossy(&ran.stderr).into_owned(), expected);
    }
    same("10000 lines on one stream", ran.stdout.len(), 2 * expected.len())
}

pub async fn every_byte_value_survives(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let format: String = (0..256).map(|byte| format!("\\{byte:03o}")).collect();
    let spec = ExecSpec::new(["sh", "-c", "printf \"$1\"; printf \"$1\" >&2; printf \"$1\"", "sh", &format]);
    let ran = h.exec(&s, &spec).await?;
    let all: Vec<u8> = (0..=255).collect();
    if h.can().separate_streams {
        same("all byte values, twice, on stdout", ran.stdout, all.repeat(2))?;
        return same("all byte values on stderr", ran.stderr, all);
    }
    same("all byte values on the one stream", ran.stdout, all.repeat(3))
}

pub async fn a_flood_is_bounded_and_flagged(h: &Harness) -> Check {
    const FLOOD: u64 = 50_000_000;
    const LIMIT: u64 = 1 << 20;
    let s = h.sandbox().await?;
    let script = format!("printf BEGIN; head -c {FLOOD} /dev/zero | tr '\\0' x; printf END; printf little >&2");
    let spec = ExecSpec { output_limit: LIMIT, ..ExecSpec::sh(&script) };
    let ran = h.exec(&s, &spec).await?;
    same("the flood's end", ran.report.completion, Completion::Exited { code: 0 })?;
    let (out, said) = (&ran.stdout, &ran.report.stdout);
    let fits = (LIMIT / 2..=LIMIT).contains(&(out.len() as u64));
    ensure!(fits, "a limit of {LIMIT} bytes let {} bytes pass", out.len());
    ensure!(said.truncated(), "50 MB through a limit of 1 MiB are not reported as truncated: {said:?}");
    if let Some(total) = said.total_bytes {
        let written = FLOOD + 8 + if h.can().separate_streams { 0 } else { 6 };
        same("the counted bytes", total, written)?;
    }
    let gap = said.gap_at.and_then(|gap| usize::try_from(gap).ok()).filter(|gap| (1..out.len()).contains(gap));
    ensure!(gap.is_some(), "no gap inside the delivered bytes is named: {said:?}");
    let (head, tail) = out.split_at(gap.unwrap_or(0));
    ensure!(
        head.starts_with(b"BEGINxx") && head[5..].iter().all(|b| *b == b'x'),
        "what is before the gap is not the head"
    );
    if h.can().separate_streams {
        ensure!(
            tail.ends_with(b"xxEND") && tail[..tail.len() - 3].iter().all(|b| *b == b'x'),
            "what is after the gap is not the tail"
        );
        same("the other stream", ran.stderr, b"little".to_vec())?;
        ensure!(!ran.report.stderr.truncated(), "the other stream is reported as truncated too");
    }
    Ok(())
}

pub async fn a_limit_of_nothing_still_counts(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let ran = h.exec(&s, &ExecSpec { output_limit: 0, ..ExecSpec::sh("echo hello") }).await?;
    same("the end", ran.report.completion, Completion::Exited { code: 0 })?;
    same("delivered bytes", ran.stdout.len(), 0)?;
    ensure!(ran.report.stdout.truncated(), "6 bytes through a limit of 0 are not reported: {:?}", ran.report.stdout);
    Ok(())
}

pub async fn no_output_is_an_answer(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let ran = h.exec(&s, &ExecSpec::new(["true"])).await?;
    same("stdout and stderr", (ran.stdout.len(), ran.stderr.len()), (0, 0))?;
    ensure!(!ran.report.stdout.truncated() && !ran.report.stderr.truncated(), "nothing is reported as truncated");
    Ok(())
}

pub async fn output_is_complete_when_the_command_has_ended(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    // The last bytes are written right before the exit: whoever stops reading at the exit loses some.
    for n in 0..5 {
        let ran = h.exec(&s, &ExecSpec::sh(&format!("head -c {} /dev/zero | tr '\\0' x", 300_000 + n))).await?;
        ran.text()?;
        same("bytes of stdout", ran.stdout.len(), 300_000 + n)?;
    }
    Ok(())
}

pub async fn output_arrives_while_the_command_runs(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let sink = Collected::default();
    let spec = ExecSpec::sh("echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo second");
    let spec = spec.timeout(Duration::from_secs(40));
    let call = h.call();
    let command = h.exec_into(&call, &s, &spec, &sink);
    let (ran, seen) = tokio::join!(command, async {
        let seen = sink.shows("first", h.pace.soon).await;
        h.sh(&s, "touch /tmp/go").await?;
        seen
    });
    seen?;
    same("all of the output", ran?.text()?, "first\nsecond".into())
}

pub async fn lines_split_anywhere_are_joined_again(h: &Harness) -> Check {
    let s = h.sandbox().await?;
    let ran = h.exec(&s, &ExecSpec::sh("printf 'gr\\303'; sleep 0.3; printf '\\274\\303\\237e'")).await?;
    same("a text written in two parts, cut inside a character", ran.text()?, "grüße".into())
}
