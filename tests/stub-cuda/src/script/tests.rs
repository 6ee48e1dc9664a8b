//! How scripts are read and refused.

use super::*;

fn refused(text: &str) -> String {
    Script::parse(text).unwrap_err().to_string()
}

#[test]
fn a_script_describes_a_device_and_its_faults() {
    let text = "devices=2 version=11040 # two old ones\n\
                uuid=GPU-00010203-0405-0607-0809-0a0b0c0d0e0f\n\
                call=cuLaunchKernel nth=3 code=700 sticky; call=nvmlInit hang";
    let script = Script::parse(text).unwrap();
    assert_eq!((script.devices, script.version, script.rules.len()), (2, 11_040, 2));
    assert_eq!(script.uuid, Some(std::array::from_fn(|at| u8::try_from(at).unwrap())));
    assert_eq!(script.rules[0].effect, Effect::Sticky(700));
    assert_eq!(script.rules[1].effect, Effect::Hang);
    assert_eq!(Script::parse("").unwrap(), Script::default());
}

#[test]
fn a_rule_applies_to_the_calls_that_it_names() {
    let turns = |words: &str| -> Vec<bool> {
        let mut script = Script::parse(&format!("call=cuMemAlloc {words} hang")).unwrap();
        let rule = &mut script.rules[0];
        assert!(!rule.applies("cuMemFree"));
        (0..6).map(|_| rule.applies("cuMemAlloc")).collect()
    };
    let of = |numbers: &[usize]| (1..=6).map(|n| numbers.contains(&n)).collect::<Vec<_>>();
    assert_eq!(turns(""), of(&[1, 2, 3, 4, 5, 6]));
    assert_eq!(turns("nth=2"), of(&[2]));
    assert_eq!(turns("from=5"), of(&[5, 6]));
    assert_eq!(turns("every=3"), of(&[3, 6]));
}

#[test]
fn a_bad_script_is_refused_with_the_rule_and_the_word() {
    for (text, words) in [
        ("devices=x", "rule 1, `devices=x`: devices=x: not a number in range"),
        ("devices=1; colour=2", "rule 2, `colour=2`: colour=2 is not a word of a script"),
        ("call=cuMakeCoffee hang", "there is no call cuMakeCoffee"),
        ("call=cuMemAlloc_v2 hang", "there is no call cuMemAlloc_v2"),
        ("call=cuMemAlloc", "no effect"),
        ("call=cuMemAlloc nth=0 hang", "nth=0: must be at least 1"),
        ("call=cuMemAlloc nth=1 every=2 hang", "every=2: repeated"),
        ("call=cuMemAlloc code=2 hang", "hang: repeated"),
        ("call=cuMemAlloc sticky", "sticky must follow code=N"),
        ("call=cuMemAlloc code=4294967296", "not a number in range"),
        ("call=cuMemAlloc code=2 while-file=here", "not an absolute path"),
        ("call=cuMemAlloc code=2 sticky=yes", "sticky=yes is not a word"),
        ("uuid=GPU-12", "uuid=GPU-12: not a UUID"),
    ] {
        let error = refused(text);
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn versions_are_not_part_of_a_calls_name() {
    assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc");
    assert_eq!(without_version("cuInit"), "cuInit");
    assert_eq!(without_version("nvmlDeviceGetComputeRunningProcesses_v3").len(), 36);
}

#[test]
fn files_decide_in_which_process_and_when_a_rule_applies() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file").display().to_string();
    // A script for each case, because conditions are decided once for the life of a script.
    let rule = |words: &str| {
        let text = format!("call=cuInit {words}={file} hang");
        let mut script = Script::parse(&text).unwrap();
        move || script.rules[0].applies("cuInit")
    };
    let (mut early, mut during) = (rule("after-file"), rule("while-file"));
    assert!(!early() && !during());
    let (mut first, mut second) = (rule("once-file"), rule("once-file"));
    assert!(first() && first() && !second());
    let mut late = rule("after-file");
    assert!(!early() && late() && during());
    std::fs::remove_file(&file).unwrap();
    assert!(!early() && late() && !during() && first() && !second());
}
