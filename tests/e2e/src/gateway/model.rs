//! A scripted "model" that solves bundled tasks by tools: it looks, changes, checks and finishes. It knows nothing but what
//! the conversation says, and gives up on tasks that it does not know.

use serde_json::json;

use super::{Asked, Reply, call};

/// The bundled tasks that it solves, none of which needs more than a shell.
pub const SOLVED: [&str; 7] = [
    "access-log",
    "agent-handover",
    "fifo-service",
    "relay-config",
    "repair-backup",
    "site-permissions",
    "unpack-bundle",
];

/// What it answers.
#[must_use]
pub fn scripted(asked: &Asked) -> Reply {
    let known: [(&str, Turns); SOLVED.len()] = [
        ("# Configure the relay", relay),
        ("# Put the site's permissions right", site),
        ("# Hand the desk over", desk),
        ("/workspace/access.log is", log),
        ("/workspace/backup.sh SOURCE DEST is", backup),
        ("# Keep a service running", fifo),
        ("# Unpack a bundle", bundle),
    ];
    let turns = known.into_iter().find(|(start, _)| asked.task().starts_with(start)).map(|(_, turns)| turns());
    turns.unwrap_or_default().get(asked.turn()).cloned().unwrap_or_else(Reply::finish)
}

type Turns = fn() -> Vec<Reply>;

fn write(path: &str, content: &str) -> Reply {
    Reply::call("write_file", json!({ "path": path, "content": content }))
}

fn relay() -> Vec<Reply> {
    let patch = |old: &str, new: &str| call("patch_file", json!({ "path": "/app/relay.conf", "old": old, "new": new }));
    vec![
        Reply::Calls(vec![
            call("run_command", json!({ "command": "echo \"$RELAY_PORT $RELAY_REGION\"" })),
            call("read_file", json!({ "path": "relay.conf" })),
        ]),
        Reply::Calls(vec![
            patch("port = 8080\nregion = unset\n;tls = on", "port = 7431\nregion = north-3\ntls = on"),
            // `max_clients = 10` alone occurs in no other line, but a careful model asks for the line's end.
            patch("max_clients = 10\n", "max_clients = 250\n"),
        ]),
        Reply::run("cat /app/relay.conf"),
    ]
}

fn site() -> Vec<Reply> {
    vec![
        Reply::run("cd site && find . | LC_ALL=C sort"),
        Reply::run(
            "cd site && find . -type d -exec chmod 0755 {} + && find . -type f -exec chmod 0644 {} + && \
             find bin -maxdepth 1 -type f -exec chmod 0755 {} + && find private -type d -exec chmod 0700 {} + && \
             find private -type f -exec chmod 0600 {} +",
        ),
    ]
}

fn desk() -> Vec<Reply> {
    vec![
        Reply::run("ls desk desk/inbox"),
        Reply::run("cd desk && chmod 0644 report.txt inbox/welcome.txt && chmod 0600 token.txt && chmod 1777 inbox"),
    ]
}

const REPORT: &str = r#"#!/bin/sh
export LC_ALL=C
cd /workspace
good='^[^ ]+ - - \[[^] ]+ [^] ]+\] "[^" ]+ [^" ]+ [^" ]+" [0-9][0-9][0-9] ([0-9]+|-)$'
grep -E "$good" access.log >/tmp/good
{
    echo "requests $(grep -c . /tmp/good)"
    echo "malformed $(grep -vE "$good" access.log | grep -c .)"
    awk '{ sum += $10 } END { print "bytes", sum + 0 }' /tmp/good
    awk '{ print $9 }' /tmp/good | sort | uniq -c | awk '{ print "status", $2, $1 }'
    awk '{ print $1 }' /tmp/good | sort | uniq -c | sort -k1,1nr -k2,2 | head -n 3 | awk '{ print "client", $2, $1 }'
    awk '$9 >= 500 { split($7, path, "?"); print path[1] }' /tmp/good | sort | uniq -c | sort -k1,1nr |
        head -n 1 | awk '{ print "failing", $2, $1 }'
} >report.txt
"#;

fn log() -> Vec<Reply> {
    vec![
        Reply::call("read_file", json!({ "path": "access.log", "lines": 5 })),
        write("/tmp/report.sh", REPORT),
        Reply::run("sh /tmp/report.sh && cat report.txt"),
    ]
}

const BACKUP: &str = r#"#!/bin/sh
# backup.sh SOURCE DEST: copies the notes (*.txt) of SOURCE into DEST.
plain() { case $1 in -*) printf './%s' "$1" ;; *) printf '%s' "$1" ;; esac; }
source=$(plain "$1") dest=$(plain "$2")
[ -d "$source" ] || { echo "not a directory: $source" >&2; exit 2; }
mkdir -p "$dest" || exit 1
n=0
for note in "$source"/*.txt; do
    [ -f "$note" ] && [ ! -L "$note" ] || continue
    cp "$note" "$dest/" && n=$((n + 1))
done
echo "copied $n"
"#;

fn backup() -> Vec<Reply> {
    vec![
        Reply::call("read_file", json!({ "path": "/workspace/backup.sh" })),
        write("backup.sh", BACKUP),
        Reply::run(
            "mkdir '/tmp/a b' && echo x >'/tmp/a b/-n.txt' && sh backup.sh '/tmp/a b' '/tmp/c d' && ls '/tmp/c d'",
        ),
    ]
}

const SERVICE: &str = r#"#!/bin/sh
export LC_ALL=C
exec 3<>/workspace/queue/requests
echo $$ >/workspace/queue/pid
while IFS= read -r line <&3; do
    printf '%s %s\n' "${line%% *}" "$(printf %s "${line#* }" | tr a-z A-Z)" >>/workspace/queue/replies
done
"#;

fn fifo() -> Vec<Reply> {
    vec![
        write("/workspace/queue/service.sh", SERVICE),
        Reply::run(
            "cd queue && mkfifo requests && : >replies && (setsid sh service.sh >/dev/null 2>&1 </dev/null &) && \
             until [ -s pid ]; do sleep 0.1; done; echo started",
        ),
    ]
}

const UNPACK: &str = r#"#!/bin/sh
set -e
export LC_ALL=C
cd /workspace
mkdir -p unpacked quarantine /tmp/all
tar -xzf incoming/bundle.tar.gz -C /tmp/all --no-same-owner
cd /tmp/all
find . -type f ! -path ./SHA256SUMS | sed 's|^\./||' | while IFS= read -r name; do
    if grep -qxF "$(sha256sum <"$name" | cut -c 1-64)  $name" SHA256SUMS; then to=unpacked; else to=quarantine; fi
    mkdir -p "/workspace/$to/$(dirname "$name")"
    cp "$name" "/workspace/$to/$name"
done
cd /workspace/unpacked
find . -type f | sed 's|^\./||' | sort | while IFS= read -r name; do
    echo "$(wc -c <"$name" | tr -d ' ') $name"
done >../index.txt
"#;

fn bundle() -> Vec<Reply> {
    vec![
        Reply::run("tar -tzf incoming/bundle.tar.gz | LC_ALL=C sort"),
        write("/tmp/unpack.sh", UNPACK),
        Reply::run("sh /tmp/unpack.sh && cat index.txt"),
    ]
}
