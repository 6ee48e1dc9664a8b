#!/usr/bin/env bash
# Plants one bug at a time in a copy of the pool's core and runs the simulator against it. A simulator
# that stays green proves little until every one of these makes it red. MUTANTS.md has the table.
#
#   tests/sim/mutants.sh [seeds] [name-part]
#
# Works on a copy under target/mutants; the working tree is only read.
set -euo pipefail

seeds=${1:-2000}
only=${2:-}
root=$(cd "$(dirname "$0")/../.." && pwd)
copy=$root/target/mutants/gridpool
export CARGO_TARGET_DIR=$root/target/mutants/target
# Most of the time goes into building.
export CARGO_PROFILE_RELEASE_DEBUG=0 CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_INCREMENTAL=true
caught=0 missed=0 broken=0

rm -rf "$copy"
mkdir -p "$copy/src" "$copy/tests"
cp -r "$root/protocol" "$copy/protocol"
cp -r "$root/tests/sim" "$copy/tests/sim"
cp "$root/Cargo.lock" "$copy/Cargo.lock"
printf '//! The core alone.\npub mod pool;\n' >"$copy/src/lib.rs"
# The workspace as it is, with the core alone for a supervisor.
{
    sed -e 's/^members = .*/members = [".", "protocol"]/' "$root/Cargo.toml"
    cat <<'TOML'

[package]
name = "gridpool"
version.workspace = true
edition.workspace = true

[dependencies]
gridpool-protocol = { path = "protocol" }
nix.workspace = true

[[test]]
name = "sim"
path = "tests/sim/main.rs"
TOML
} >"$copy/Cargo.toml"

fresh() {
    rm -rf "$copy/src/pool"
    cp -r "$root/supervisor/src/pool" "$copy/src/pool"
}

simulate() {
    (cd "$copy" && SIM_SEEDS=$seeds timeout 300 \
        cargo test --offline --release --quiet --test sim every_rule 2>&1)
}

# mutant NAME FILE PERL: plants the bug that the substitution makes.
mutant() {
    local name=$1 file=$copy/src/pool/$2 change=$3 output rule seed
    [[ $name == *"$only"* ]] || return 0
    fresh
    perl -0pi -e "$change" "$file"
    if cmp -s "$file" "$root/supervisor/src/pool/$2"; then
        broken=$((broken + 1))
        printf '| %s | NOT PLANTED | the text it changes is gone |\n' "$name"
        return 0
    fi
    if output=$(simulate); then
        missed=$((missed + 1))
        printf '| %s | MISSED | |\n' "$name"
        return 0
    fi
    rule=$(sed -n 's/^broken: //p' <<<"$output" | head -1)
    seed=$(sed -n 's/^replay: SIM_SEED=//p' <<<"$output" | head -1)
    if [[ -z $rule ]] && grep -q 'did not reach these' <<<"$output"; then
        rule='(coverage)' seed=$seeds
    fi
    if [[ -z $rule ]]; then
        broken=$((broken + 1))
        printf '| %s | NOT BUILT | %s |\n' "$name" "$(grep -m1 '^error' <<<"$output")"
        return 0
    fi
    caught=$((caught + 1))
    printf '| %s | seed %s | %s |\n' "$name" "$seed" "$rule"
}

fresh
simulate >/dev/null || { echo "the simulator fails without any bug planted" >&2; exit 1; }
printf '| bug | caught by | rule |\n|---|---|---|\n'

# Generations and messages
mutant 'no generation fence' workers.rs 's/slot\.worker\(\) == worker && slot\.has_process/slot.device == worker.device && slot.has_process/'
mutant 'a dead process is still heard' workers.rs 's/slot\.worker\(\) == worker && slot\.has_process\(\)/slot.worker() == worker/'
mutant 'an answer for another attempt of the job counts' workers.rs 's/if \*running == attempt =>/if running.job == attempt.job =>/'
mutant 'the answer of a worker being killed is dropped' workers.rs 's/if \*running == Some\(attempt\) =>/if false \&\& *running == Some(attempt) =>/'
mutant 'stale messages are not counted' workers.rs 's/None => self\.counters\.stale \+= 1/None => {}/'

# Jobs
mutant 'poison one death late' workers.rs 's/job\.deaths >= self/job.deaths > self/'
mutant 'poison one death early' workers.rs 's/job\.deaths >= self/job.deaths + 1 >= self/'
mutant 'a hang is no evidence' workers.rs 's/hang \|\| exit\.is_evidence\(\)/exit.is_evidence()/'
mutant 'a bare SIGKILL is evidence' event.rs 's/\[4, 6, 7, 8, 11\]/[4, 6, 7, 9, 11]/'
mutant 'one attempt too many' workers.rs 's/begun >= self\.config/begun > self.config/'
mutant 'one attempt too few' workers.rs 's/begun >= self\.config/begun + 1 >= self.config/'
mutant 'idempotent is ignored' workers.rs 's/!job\.request\.idempotent/false/'
mutant 'device errors do not count' workers.rs 's/job\.device_errors \+= 1;//'
mutant 'a job is lost with a worker that was killed' workers.rs 's/(SlotState::Killed \{) attempt, (cause, \.\. \} => )\(attempt, /$1 $2(None, /'
mutant 'a job is lost with an unkillable worker' upkeep.rs 's/(let Some\(attempt\) = attempt else \{ return \};)/$1 if attempt.number > 0 { return; }/'
mutant 'the deadline is checked one tick late' upkeep.rs 's/if at > now \{\n(\s+)return/if at >= now {\n$1return/'
mutant 'the pool does not wake for deadlines' mod.rs 's/slots\.chain\(job\)\.chain\(drain\)/job.filter(|_| false).into_iter().chain(slots).chain(drain)/'
mutant 'a late job does not free its device' upkeep.rs 's/\*at = Some\(free_at\)/_ = (at, free_at)/'
mutant 'a cancelled job has no grace' clients.rs 's/now\.after\(self\.config\.cancel_grace\)/now/'
mutant 'anybody may cancel' clients.rs 's/if self\.jobs\[&job\]\.client != client/if false \&\& self.jobs[\&job].client != client/'
mutant 'the verdict is given twice' mod.rs 's/(self\.actions\.push_back\(Action::Finish \{ client, job: id, key, receipt: Box::new\(receipt)(\) \}\);)/let again = Box::new(receipt.clone()); $1$2 if again.attempts.len() > 1 { self.actions.push_back(Action::Finish { client, job: id, key, receipt: again }); }/'
mutant 'a receipt forgets the attempt that was cut off' upkeep.rs 's/job\.failed\(device, outcome, String::new\(\)\);/let _ = (device, outcome, job);/'

# Clients
mutant 'queue one too deep' clients.rs 's/self\.queue\.len\(\) >= self/self.queue.len() > self/'
mutant 'one job too many for a client' clients.rs 's/own >= self\.config/own > self.config/'
mutant 'one byte too few' clients.rs 's/request\.inline_bytes > self\.config/request.inline_bytes >= self.config/'
mutant 'bytes are not given back' mod.rs 's/self\.inline_bytes -= job\.request\.inline_bytes;//'
mutant 'a drain accepts jobs' clients.rs 's/if self\.phase != Phase::Serving \{/if matches!(self.phase, Phase::Leaving | Phase::Left) {/'
mutant 'a replayed key runs again' clients.rs 's/self\.verdicts\.find\(key\) \{/self.verdicts.find(key).filter(|_| false) {/'
mutant 'a key of another client is accepted' clients.rs 's/live\.client == client\n\s*&& //'
mutant 'one verdict too many is kept' verdicts.rs 's/self\.order\.len\(\) > self\.kept/self.order.len() > self.kept + 1/'
mutant 'the verdict of a vanished client is remembered' mod.rs 's/if !job\.orphaned \{\n(\s+)self\.verdicts/if true {\n$1self.verdicts/'
mutant 'queued jobs outlive their client' clients.rs 's/if job\.state == JobState::Queued \{/if false {/'
mutant 'the job of a vanished client runs again' workers.rs 's/if job\.orphaned \{/if false {/'

# Devices
mutant 'quarantine one death late' slot.rs 's/idle_deaths >= config/idle_deaths > config/'
mutant 'quarantine one death early' slot.rs 's/idle_deaths >= config/idle_deaths + 1 >= config/'
mutant 'quarantine one failed start late' slot.rs 's/start_failures >= config/start_failures > config/'
mutant 'failed starts are not forgiven' slot.rs 's/self\.start_failures = 0;//'
mutant 'old deaths count for ever' slot.rs 's/now\.since\(at\) > config\.restart_window/false/'
mutant 'a bare SIGKILL counts against the device' workers.rs 's/None if exit\.is_bare_kill\(\) => Blame::Outside/None if exit.is_bare_kill() => Blame::Device/'
mutant 'freeing a device counts against it' workers.rs 's/=> Blame::Pool/=> Blame::Device/'
mutant 'exit code 73 is tried again' event.rs 's/\[exit::worker::CONFIG, exit::worker::DRIVER\]/[exit::worker::DRIVER]/'
mutant 'a program that is not there is started again' workers.rs 's/Blame::Outside, is_final,/Blame::Outside, false,/'
mutant 'a start that failed for want of descriptors counts' workers.rs 's/Blame::Outside, is_final,/Blame::Device, is_final,/'
mutant 'a job of a worker killed from outside avoids its device' workers.rs 's/job\.avoid = None;//'
mutant 'a pause is not excused' upkeep.rs 's/if gap >= PAUSE_MIN \{/if gap > PAUSE_MIN * 1_000 {/'
mutant 'a short pause is excused' upkeep.rs 's/if gap >= PAUSE_MIN \{/if gap * 2 >= PAUSE_MIN {/'
mutant 'a pause excuses silence alone' slot.rs 's/\*at = at\.after\(gap\)/_ = (at, gap)/'
mutant 'the report names the wrong worker' mod.rs 's/find\(\|slot\| slot\.device == device\);\n(\s+)slot\.filter/find(|slot| slot.device <= device);\n$1slot.filter/'
mutant 'a device that was READY once counts as misconfigured' slot.rs 's/self\.never_ready = false;//'
mutant 'a receipt does not name the device' slot.rs 's/self\.info = Some\(info\);/let _ = info;/'
mutant 'no backoff' slot.rs 's/now\.after\(wait\)/now.after(wait * 0)/'
mutant 'the first restart waits' slot.rs 's/self\.backoff_steps\.checked_sub\(1\)/self.backoff_steps.checked_sub(0)/'
mutant 'the backoff has no cap' slot.rs 's/\.min\(config\.backoff_max\)//'
mutant 'READY resets the backoff' slot.rs 's/self\.was_ready = true;/self.was_ready = true; self.backoff_steps = 0;/'
mutant 'work does not reset the backoff' slot.rs 's/self\.jobs_done \+= 1;\n\s*self\.backoff_steps = 0;/self.jobs_done += 1;/'
mutant 'a suspect gets a job' slot.rs 's/if now\.since\(self\.last_heard\) < config\.heartbeat_suspect =>/if now.since(self.last_heard) < config.heartbeat_kill =>/'
mutant 'silence is never noticed' slot.rs 's/SlotState::Ready \{ \.\. \} => Some\(silent\)/SlotState::Ready { .. } => None/'
mutant 'a hung worker is given up at once' slot.rs 's/SlotState::Killed \{ give_up_at, \.\. \} => Some\(give_up_at\)/SlotState::Killed { .. } => Some(self.last_heard)/'
mutant 'a device is used beside its unkillable worker' upkeep.rs 's/slot\.state = SlotState::Unkillable \{ cause \};/slot.state = SlotState::Waiting { until: now };/'
mutant 'a device that is being freed counts as lost' slot.rs 's/\| SlotState::Killed \{ \.\. \}(\n[^}]*\{ \.\. \}\n[^}]*\{ \.\. \}\n[^}]*\{ \.\. \} => true,\n\s+SlotState::Quarantined\n\s+\| SlotState::Stopped\n)/$1 | SlotState::Killed { .. }\n/'
mutant 'the device of the last failure is not avoided' upkeep.rs 's/\(job\.avoid != Some\(device\) \|\| !elsewhere\(\)\)/(job.avoid != Some(device) || !elsewhere() || true)/; s/\(job\.avoid == Some\(device\), since, device\)/(since, device)/'

# Queue
mutant 'a newcomer catches up' queue.rs 's/\.max\(self\.reached\);/;/'
mutant 'work is not charged' queue.rs 's/share\.clock\.saturating_add\(cost\)/share.clock.saturating_add(cost.min(1))/'
mutant 'clients go in order of their number' queue.rs 's/\.map\(\|\(&client, share\)\| \(share\.clock, client\)\)/.map(|(\&client, share)| (share.clock.min(0), client))/'
mutant 'the last job of a client goes first' queue.rs 's/share\.waiting\.iter\(\)\.find/share.waiting.iter().rev().find/'

# The end
mutant 'a drain forgets what runs' upkeep.rs 's/if self\.jobs\.is_empty\(\) \{/if self.queue.len() == 0 {/'
mutant 'a drain has no timeout' upkeep.rs 's/\} else if now >= until \{/} else if now >= until \&\& self.jobs.len() > 1_000 {/'
mutant 'a drain waits for lost devices' upkeep.rs 's/(self\.give_up_if_no_device\(now\);)\n(\s+)(self\.end_drain\(now\);)/$3\n$2$1/'
mutant 'the order to stop now is ignored by a pool that stops' upkeep.rs 's/if self\.phase == Phase::Left \{/if matches!(self.phase, Phase::Left | Phase::Leaving) {/'
mutant 'the pool leaves before its workers' upkeep.rs 's/!slot\.has_process\(\) \|\| matches!\(/!slot.has_process() || matches!(slot.state, SlotState::Stopping { .. }) || matches!(/'
mutant 'the pool waits for a worker that cannot be killed' upkeep.rs 's/(!slot\.has_process\(\)) \|\| matches!\(slot\.state, SlotState::Unkillable \{ \.\. \}\)/$1/'
mutant 'a death while the pool leaves counts' workers.rs 's/if leaving \|\| stopping \{/if false \&\& (leaving || stopping) {/'
mutant 'a start that fails while the pool leaves counts' workers.rs 's/if matches!\(self\.phase, Phase::Leaving \| Phase::Left\) \{/if false {/'
mutant 'workers start while the pool leaves' upkeep.rs 's/SlotState::Waiting \{ \.\. \} => slot\.state = SlotState::Stopped,/SlotState::Waiting { .. } => {}/; s/if !matches!\(self\.phase, Phase::Serving \| Phase::Draining \{ \.\. \}\) \{/if false {/'

printf '\n%d caught, %d missed, %d could not be tried\n' "$caught" "$missed" "$broken"
[[ $missed == 0 && $broken == 0 ]]
