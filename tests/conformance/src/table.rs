//! The table of all behaviours: name, what selects it, and the promise in one line.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use sandbox_bench_core::{Capabilities, Enforcement};

use crate::behaviours::*;
use crate::check::Check;
use crate::harness::Harness;

/// One promise of the contract.
pub struct Behaviour {
    /// Module and function.
    pub name: &'static str,
    /// What holds if it passes.
    pub promise: &'static str,
    /// Why it cannot be tested on a backend with these capabilities, or none if it can.
    pub unavailable: Selector,
    /// The test.
    pub run: fn(Arc<Harness>) -> Running,
}

/// A behaviour under way.
pub type Running = Pin<Box<dyn Future<Output = Check> + Send>>;

/// Says why these capabilities do not select a behaviour, or none if they do.
pub type Selector = fn(&Capabilities) -> Option<&'static str>;

macro_rules! behaviours {
    ($($module:ident::$name:ident if $needs:expr => $promise:literal;)*) => {
        /// All behaviours.
        pub const BEHAVIOURS: &[Behaviour] = &[$(Behaviour {
            name: concat!(stringify!($module), "::", stringify!($name)),
            promise: $promise,
            unavailable: $needs,
            run: |harness| Box::pin(async move { $module::$name(&harness).await }),
        }),*];
    };
}

const ALWAYS: Selector = |_| None;
const BINARY: Selector = |can| missing(can.binary_output, "output is text");
const STDIN: Selector = |can| missing(can.stdin, "commands take no stdin");
const ROOT: Selector = |can| missing(can.root_user, "commands cannot run as root");
const USERS: Selector = |can| missing(can.non_root_user, "commands cannot run as another user");
const BOTH_USERS: Selector = |can| ROOT(can).or_else(|| USERS(can));
const KILLED_USERS: Selector = |can| USERS(can).or_else(|| missing(can.tree_kill, "process trees cannot be killed"));
const OFF: Selector = |can| missing(can.network_off, "the network cannot be off");
const PUBLIC: Selector = |can| missing(can.network_public, "there is no network");
const FIND: Selector = |can| missing(can.find_by_tag, "tags are not kept at the backend");
const ATTACH: Selector = |can| missing(can.attach, "sandboxes cannot be attached to");
const ACROSS: Selector = |can| missing(can.attach_across_processes, "only the creating process can attach");
const DOCKERFILE: Selector = |can| missing(can.dockerfile, "Dockerfiles cannot be built");
const SNAPSHOT: Selector = |can| missing(can.snapshot, "there are no warm artifacts");
const GOES_ON: Selector =
    |can| SNAPSHOT(can).or_else(|| missing(can.snapshot_keeps_sandbox, "a snapshot ends its sandbox"));
const RESUME: Selector = |can| missing(can.resume, "sandboxes cannot be suspended");
const NO_RESUME: Selector = |can| missing(!can.resume, "sandboxes can be suspended");
const BUILD: Selector = |can| missing(can.build_artifact, "artifacts are made from sandboxes only");
const OOM: Selector = |can| {
    missing(
        can.memory_limit == Enforcement::Enforced && can.reports_oom,
        "out-of-memory kills are not enforced and told",
    )
};
const LIFETIME: Selector = |can| missing(can.lifetime == Enforcement::Enforced, "the backend does not limit lifetimes");
const PIDS: Selector = |can| missing(can.pids_limit == Enforcement::Enforced, "the number of processes is not limited");
const DISK: Selector = |can| missing(can.disk_limit == Enforcement::Enforced, "storage is not limited");

fn missing(has: bool, reason: &'static str) -> Option<&'static str> {
    (!has).then_some(reason)
}

behaviours! {
    exec::exit_codes_are_exact if ALWAYS => "every exit code arrives as it was";
    exec::a_program_that_cannot_run_ends_as_in_a_shell if ALWAYS =>
        "127 for what is not there, 126 for what is no program";
    exec::signals_are_told if ALWAYS => "a signal is told exactly, or as 128 + n, as the capability says";
    exec::arguments_arrive_unchanged if ALWAYS => "quotes, line ends, empty and 100 kB arguments are kept";
    exec::the_environment_is_set_and_overridden if ALWAYS =>
        "variables of the sandbox, and over them those of the command";
    exec::nothing_of_the_host_environment_enters if ALWAYS => "no variable of the harness is visible inside";
    exec::the_working_directory_is_the_one_asked_for if ALWAYS =>
        "sandbox's, command's, and NotFound for a missing one";
    exec::stdin_arrives_and_ends if STDIN => "bytes on stdin are read to their end, or may be left unread";
    exec::commands_run_in_parallel if ALWAYS => "commands of one sandbox run at the same time";
    exec::unusable_requests_are_refused if ALWAYS => "InvalidRequest before anything is started";
    exec::the_time_inside_is_plausible if ALWAYS => "guest time is at least the sleep and at most the host's time";
    exec::requests_and_bytes_are_counted if ALWAYS => "the meter sees requests and payload bytes";
    exec::a_background_process_neither_delays_nor_ends_with_its_command if ALWAYS => "it holds stdout, and lives on";
    exec::a_background_process_ends_with_its_command_where_asked if ALWAYS =>
        "keep_background = false, others untouched";

    output::the_streams_are_apart if ALWAYS => "stdout and stderr are told apart, or all is stdout";
    output::order_is_kept_within_each_stream if ALWAYS => "10 000 lines in their order";
    output::every_byte_value_survives if BINARY => "binary output is not touched";
    output::lines_split_anywhere_are_joined_again if ALWAYS => "a character may be cut between two writes";
    output::a_flood_is_bounded_and_flagged if ALWAYS => "50 MB through 1 MiB: head, tail, gap and counts";
    output::a_limit_of_nothing_still_counts if ALWAYS => "no bytes are delivered, but their loss is told";
    output::no_output_is_an_answer if ALWAYS => "nothing is delivered and nothing is flagged";
    output::output_is_complete_when_the_command_has_ended if ALWAYS => "the last bytes before the exit are there";
    output::output_arrives_while_the_command_runs if ALWAYS => "output streams";

    deadlines::a_time_limit_kills_the_whole_tree if ALWAYS =>
        "children, orphans, sessions, deaf ones; output so far is kept";
    deadlines::the_deadline_of_the_call_is_a_time_limit_too if ALWAYS => "the earlier of the two ends a command";
    deadlines::cancellation_kills_the_whole_tree_soon if ALWAYS => "as a time limit, when the caller says so";
    deadlines::a_time_limit_holds_for_other_users_too if KILLED_USERS => "also what runs as nobody is killed";
    deadlines::a_sandbox_works_on_after_a_time_limit if ALWAYS => "the command ends, the sandbox does not";
    deadlines::an_expired_call_has_no_effect if ALWAYS => "no time left, or cancelled: nothing is done";
    deadlines::a_sandbox_ends_by_itself_after_its_lifetime if LIFETIME => "the backstop, should we be gone";

    upload::single_files_keep_content_and_mode if ALWAYS => "bytes, modes, root as owner; from memory and from disk";
    upload::trees_keep_modes_links_and_empty_directories if ALWAYS => "long, deep and odd names, dangling links";
    upload::a_large_file_arrives_whole if ALWAYS => "20 MiB, compared by digest";
    upload::many_small_files_arrive if ALWAYS => "2 000 of them";
    upload::a_file_replaces_what_was_there if ALWAYS => "content and mode; a link itself, not its target";
    upload::a_tree_is_merged_into_what_was_there if ALWAYS => "what it does not name stays";
    upload::missing_parents_are_made if ALWAYS => "root's, with mode 0755";
    upload::destinations_that_are_no_absolute_paths_are_refused if ALWAYS => "relative, dots, NUL: InvalidRequest";
    upload::a_tree_cannot_leave_its_destination if ALWAYS => "members with .. or / in front: InvalidRequest";
    upload::what_is_no_tar_file_is_refused if ALWAYS => "InvalidRequest, and the sandbox works on";
    upload::an_upload_of_nothing_is_no_error if ALWAYS => "no inputs, and an empty tree";
    upload::an_upload_over_the_backends_limit_is_refused if ALWAYS => "InvalidRequest and no half file";

    download::a_tree_comes_back_as_it_went_in if ALWAYS => "content, modes, links, empty directories, odd names";
    download::a_single_file_is_named_by_its_last_component if ALWAYS => "file and directory forms of the tar stream";
    download::a_large_file_comes_back_whole if ALWAYS => "20 MiB";
    download::what_is_missing_is_not_found if ALWAYS => "NotFound, InvalidRequest for no path, and no file left";
    download::a_download_over_its_limit_leaves_no_file if ALWAYS =>
        "InvalidRequest; otherwise an older file is replaced";
    download::special_files_do_not_block if ALWAYS => "a fifo is never read";
    download::files_that_grow_or_vanish_are_survived if ALWAYS => "an error or a sound tar file";

    users::commands_run_as_the_user_asked_for if USERS => "by name, by number, and by a number without an entry";
    users::an_ordinary_user_cannot_touch_what_is_roots if USERS => "modes and owners are enforced";
    users::an_unknown_user_is_not_found if USERS => "NotFound, and nothing is run";
    users::root_is_root if ROOT => "it reads, writes and creates anywhere";
    users::home_is_the_users_own if BOTH_USERS => "HOME follows the user";

    network::off_is_off if OFF => "no route, and no silence where refusal belongs";
    network::loopback_works_without_a_network if OFF => "127.0.0.1 answers";
    network::public_has_a_way_out if PUBLIC => "an interface, a route, a resolver";

    isolation::files_stay_in_their_sandbox if ALWAYS => "not in another one, not on the host";
    isolation::a_new_sandbox_sees_nothing_of_an_earlier_one if ALWAYS => "neither its files nor its deletions";
    isolation::processes_see_only_their_own_sandbox if ALWAYS => "not those of another one or of the host";
    isolation::the_hosts_files_are_out_of_reach if ALWAYS => "temporary files, and the program that runs the suite";
    isolation::sandboxes_tell_themselves_apart if ALWAYS => "boot id and namespaces: the facts of a freshness proof";

    create::the_backend_says_who_it_is if ALWAYS => "names, coherent capabilities, the architecture, a preflight";
    create::the_facts_of_a_new_sandbox_are_true if ALWAYS => "tag, backend, id, source, directory";
    create::granted_resources_are_told if ALWAYS => "granted as asked where enforced, use is plausible";
    create::sandboxes_are_made_in_parallel if ALWAYS => "four at once, each with its own tag and state";
    create::a_missing_image_is_an_error_and_leaves_nothing if ALWAYS => "the error names it";
    create::a_missing_artifact_is_an_error_and_leaves_nothing if SNAPSHOT => "also ids that look like paths";
    create::an_interrupted_create_leaves_nothing_unaccounted if FIND => "cancelled or out of time at any moment";
    create::a_dockerfile_is_built_once if DOCKERFILE => "context, directory, variables, log, cache";
    create::a_failed_build_is_an_environment_error_with_its_output if DOCKERFILE => "and leaves no sandbox";

    lifecycle::destroying_twice_is_confirmed_twice if ALWAYS => "and nothing is found after the first";
    lifecycle::what_never_existed_is_confirmed_gone if ALWAYS => "destroy converges, attach says NotFound";
    lifecycle::ids_are_never_taken_for_paths if ALWAYS => "odd ids harm nothing";
    lifecycle::a_busy_sandbox_is_destroyed_at_once if ALWAYS => "its command is lost, with no exit code";
    lifecycle::a_destroyed_sandbox_cannot_be_used if ALWAYS => "each operation says that it is gone";
    lifecycle::destroying_one_leaves_the_others_alone if ALWAYS => "their processes live on";
    lifecycle::attaching_gives_the_same_sandbox if ATTACH => "files, variables, directory";
    lifecycle::another_process_can_attach_and_destroy if ACROSS => "from the reference alone";
    lifecycle::a_resumed_sandbox_goes_on_where_it_stopped if RESUME => "the same processes and files, after a real stop";
    lifecycle::a_suspended_sandbox_is_destroyed_as_any_other if RESUME => "it is found, and confirmed gone";
    lifecycle::only_what_was_created_to_be_suspended_is if RESUME => "anything else is refused, and works on";
    lifecycle::what_cannot_suspend_says_so if NO_RESUME => "Unsupported, and the sandbox works on";
    lifecycle::dropping_a_handle_ends_nothing if ALWAYS => "the sandbox is the backend's, not the handle's";

    search::a_tag_finds_exactly_its_sandbox if FIND => "no other, and none once it is destroyed";
    search::a_run_finds_all_its_sandboxes if FIND => "by run, by All, and not by a similar name";
    search::a_dead_sandbox_is_found_until_it_is_destroyed if FIND => "whatever its commands did to it";

    artifacts::a_clone_has_the_files if SNAPSHOT => "modes, links, changes, deletions";
    artifacts::a_clone_has_no_processes_of_the_original if SNAPSHOT => "files are saved, not processes";
    artifacts::clones_share_nothing if SNAPSHOT => "neither with each other nor with later ones";
    artifacts::the_original_goes_on_apart if GOES_ON => "changes pass in neither direction";
    artifacts::a_clone_can_be_saved_again if SNAPSHOT => "two generations, both usable";
    artifacts::generations_are_deleted_in_any_order if SNAPSHOT => "the first goes, the second stays usable";
    artifacts::a_clone_says_what_it_started_from if SNAPSHOT => "the resolved source is the artifact's id";
    artifacts::settings_of_the_original_are_not_in_the_clone if SNAPSHOT => "variables are not baked in";
    artifacts::artifacts_are_listed_with_tag_and_fingerprint if SNAPSHOT => "by id and by tag, from any connection";
    artifacts::deleting_an_artifact_twice_is_confirmed_twice if SNAPSHOT => "and it cannot be started from any more";
    artifacts::deleting_an_artifact_does_not_break_its_clones if SNAPSHOT => "it is refused, or harmless";
    artifacts::an_artifact_is_built_from_a_source if BUILD => "without a sandbox of ours";

    grants::a_granted_secret_reaches_its_command_alone if ALWAYS => "in its environment, nowhere else";
    grants::a_secret_that_was_not_granted_is_denied if ALWAYS => "and the command is not run";
    grants::inputs_that_are_not_listed_are_denied if ALWAYS => "bytes, destination, stage, size; nothing is placed";
    grants::a_network_that_was_not_granted_is_denied if ALWAYS => "and nothing is created";

    limits::the_memory_limit_ends_a_command_as_out_of_memory if OOM => "and is not mistaken for another kill";
    limits::the_process_limit_contains_a_fork_bomb if PIDS => "and the sandbox can still be destroyed";
    limits::the_storage_limit_stops_a_writer if DISK => "a file cannot grow past it";
}
