//! A program that is nothing but the engine's helper.

fn main() {
    #[cfg(target_os = "linux")]
    sandbox_bench_local::engine::helper_main_if_requested();
    eprintln!("this program is started by sandbox-bench; it does nothing by itself");
    std::process::exit(2);
}
