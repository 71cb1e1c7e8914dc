//! What a sandbox must not see, reach or change.

use sandbox_bench_local::engine::{Command, Network, SandboxConfig};

use crate::support::{bench, config, run, sh};

#[tokio::test]
async fn the_hosts_homes_secrets_and_state_are_absent() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let state = bench.dir.path().display();
    assert_eq!(sh(&sandbox, &format!("ls -A /root /home {state} 2>/dev/null | grep -v : | grep .; true")).await, "");
    let hidden =
        sh(&sandbox, "ls /etc/shadow /etc/gshadow /etc/machine-id /etc/ssh/ssh_host_* 2>/dev/null; true").await;
    assert_eq!(hidden, "");
    assert_eq!(sh(&sandbox, "ls /etc/passwd /usr/bin/env").await, "/etc/passwd\n/usr/bin/env\n");
    bench.close().await;
}

#[tokio::test]
async fn only_its_own_processes_are_visible() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let seen = sh(&sandbox, "for p in /proc/[0-9]*; do cat $p/comm; done | sort | uniq -c | wc -l").await;
    assert!(seen.trim().parse::<u32>().unwrap() <= 8, "{seen}");
    assert_eq!(sh(&sandbox, "kill -9 1; kill -0 1 && echo alive").await, "alive\n");
    bench.close().await;
}

#[tokio::test]
async fn nothing_of_our_environment_or_arguments_shows() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    assert!(std::env::vars().count() > 2, "there should be something to leak");
    // Where we are an ordinary user, the kernel keeps even root inside from reading it.
    let names = sh(&sandbox, "cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n' | cut -d= -f1 | sort | xargs").await;
    assert!(["LANG PATH\n", "\n"].contains(&names.as_str()), "{names}");
    let arguments = sh(&sandbox, "cat /proc/1/cmdline | tr '\\0' ' '").await;
    assert!(arguments.ends_with(" __local-helper "), "{arguments}");
    bench.close().await;
}

#[tokio::test]
async fn changes_stay_in_the_sandbox_that_made_them() {
    let bench = bench().await;
    let (one, two) = (bench.sandbox().await, bench.sandbox().await);
    sh(&one, "echo changed >> /etc/passwd; mkdir /etc/new /workspace; rm /etc/hosts; echo x > /workspace/x").await;
    assert_eq!(
        sh(&two, "grep -c changed /etc/passwd; ls -d /etc/new /workspace 2>/dev/null; ls /etc/hosts").await,
        "0\n/etc/hosts\n"
    );
    assert!(!std::fs::read_to_string("/etc/passwd").unwrap().contains("changed"));
    assert!(!std::path::Path::new("/workspace/x").exists());
    bench.close().await;
}

#[tokio::test]
async fn lower_directories_can_be_deleted_and_made_again() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let script = "set -e; d=$(ls -d /etc/*/ | head -1); rm -r $d; [ ! -e $d ]; mkdir $d; touch $d/fresh; ls -A $d";
    assert_eq!(sh(&sandbox, script).await, "fresh\n");
    bench.close().await;
}

#[tokio::test]
async fn loopback_works_and_the_outside_is_unreachable_without_network() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    assert_eq!(sh(&sandbox, "ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev").await, "1\n");
    let script = r#"
import socket, threading
server = socket.create_server(("127.0.0.1", 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b"hello"), daemon=True).start()
print(socket.create_connection(server.getsockname(), 5).recv(5).decode())
try:
    socket.create_connection(("192.0.2.1", 80), 2)
    print("reached")
except OSError as error:
    print(error.errno)
print(socket.gethostbyname(socket.gethostname()))
"#;
    let (outcome, stdout, stderr) = run(&sandbox, Command::new(["python3", "-c", script])).await;
    assert_eq!(stdout, "hello\n101\n127.0.0.1\n", "{outcome:?} {stderr}");
    bench.close().await;
}

#[tokio::test]
async fn the_hosts_network_is_there_when_it_was_asked_for() {
    let bench = bench().await;
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let sandbox = bench.engine.create(SandboxConfig { network: Network::Host, ..config() }).await.unwrap();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 5); print('connected')");
    let (_, stdout, stderr) = run(&sandbox, Command::new(["python3", "-c", &connect])).await;
    assert_eq!(stdout, "connected\n", "{stderr}");
    let resolver = sh(&sandbox, "cat /etc/resolv.conf").await;
    assert_eq!(resolver, std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
    let offline = bench.sandbox().await;
    let (_, stdout, _) = run(&offline, Command::new(["python3", "-c", &connect])).await;
    assert_eq!(stdout, "", "without network the host's ports are out of reach");
    bench.close().await;
}

#[tokio::test]
async fn root_inside_has_no_power_over_the_host() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let script = "mount -t tmpfs none /mnt 2>&1; echo 1 > /proc/sys/kernel/panic; \
                  echo b > /proc/sysrq-trigger; dmesg -C; mknod /tmp/disk b 254 0; grep CapEff /proc/self/status";
    let (_, stdout, _) = run(&sandbox, Command::shell(script)).await;
    // Docker's fourteen, and nothing else.
    assert!(stdout.ends_with("00000000a80425fb\n"), "{stdout}");
    assert!(!std::path::Path::new("/mnt/disk").exists());
    assert_eq!(sh(&sandbox, "ls /tmp").await, "");
    bench.close().await;
}

#[tokio::test]
async fn usual_places_are_writable() {
    let bench = bench().await;
    let sandbox = bench.sandbox().await;
    let places = "/root /home /tmp /var/tmp /run /dev/shm /srv /opt /logs/verifier /workspace /var/lib/x";
    sh(&sandbox, &format!("set -e; for d in {places}; do mkdir -p $d; touch $d/file; done; echo > /dev/null")).await;
    if bench.engine.facts().non_root_user() {
        let user = sandbox_bench_local::engine::User::Ids { uid: 1000, gid: 1000 };
        let command = Command { user, ..Command::shell("touch /tmp/a /var/tmp/a /dev/shm/a && echo ok") };
        let (_, stdout, stderr) = run(&sandbox, command).await;
        assert_eq!(stdout, "ok\n", "{stderr}");
    }
    bench.close().await;
}
