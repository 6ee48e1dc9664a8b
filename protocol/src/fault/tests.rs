//! The tables hold what they should, once, and every fault reads back as it prints.

use std::collections::BTreeSet;

use super::*;

fn cuda_of(class: FaultClass) -> BTreeSet<u32> {
    cuda::CODES.iter().filter(|row| row.2 == class).map(|row| row.0).collect()
}

#[test]
fn the_cuda_groups_hold_every_documented_code_once() {
    assert!(cuda::CODES.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(cuda::CODES.len(), 106 - 1, "all but success");
    let must_end = [226, 700, 702, 714, 715, 716, 717, 718, 719, 721, 810, 911];
    let context_lost = [4, 201, 214, 220, 401, 709, 710, 999];
    let sticky = must_end.into_iter().chain(context_lost);
    assert_eq!(cuda_of(FaultClass::Sticky), sticky.collect());
    let device =
        [3, 34, 36, 46, 100, 101, 102, 303, 304, 802, 803, 804, 805, 806, 807, 808, 809, 916, 919];
    assert_eq!(cuda_of(FaultClass::Device), device.into());
    assert_eq!(cuda_of(FaultClass::Transient), [2, 47, 600, 701, 909].into());
    let ranges = [
        1..=1,
        5..=8,
        200..=200,
        202..=202,
        205..=213,
        215..=219,
        221..=225,
        227..=227,
        300..=302,
        400..=400,
        402..=402,
        500..=500,
        703..=705,
        708..=708,
        711..=713,
        720..=720,
        800..=801,
        811..=812,
        900..=908,
        910..=910,
        912..=915,
        917..=918,
    ];
    let program: BTreeSet<u32> = ranges.into_iter().flatten().collect();
    assert_eq!(program.len(), 61);
    assert_eq!(cuda_of(FaultClass::Program), program);
}

#[test]
fn every_table_is_in_ascending_order_and_says_something() {
    for family in [CUDA, ONNX, SIGNAL, XID, NVML, RECOVERY] {
        assert!(family.rows.is_sorted_by(|a, b| a.0 < b.0), "{}", family.word);
        for &(number, name, _, sentence) in family.rows {
            assert!(!name.is_empty() && !sentence.is_empty(), "{} {number}", family.word);
            assert!(!sentence.ends_with('.'), "{} {number}: {sentence}", family.word);
        }
    }
}

#[test]
fn every_fault_reads_back_as_it_prints_and_is_listed_once() {
    let listed: Vec<_> = FaultCode::listed().collect();
    for &fault in &listed {
        assert_eq!(fault.to_string().parse(), Ok(fault));
        assert!(!fault.meaning().name.is_empty(), "{fault}");
    }
    let once: BTreeSet<_> = listed.iter().collect();
    assert_eq!(once.len(), listed.len());
    for (other, word) in FaultCode::others() {
        assert!(!listed.contains(&other), "{word}");
    }
}

#[test]
fn an_unknown_fault_is_refused_with_a_suggestion() {
    let wrong = [
        "",
        "cuda",
        "cuda ",
        "cuda 0",
        "cuda -1",
        "cuda +7",
        "cuda 0x2",
        "cuda 4294967296",
        "exit 256",
        "exit -1",
        "signal 0",
        "signal 65",
        "hangs",
        "CUDA 2",
        "xid 0",
        "tpu 4",
        "cuda 2 ",
    ];
    for text in wrong {
        let error = text.parse::<FaultCode>().expect_err(text).to_string();
        assert!(
            error.starts_with(&format!("`{text}` is not a fault: write `cuda 700`")),
            "{error}"
        );
        assert!(error.contains("`not ready`"), "{error}");
    }
}

#[test]
fn a_code_that_no_header_names_is_sticky_and_has_no_name() {
    for number in [9, 99, 1_000, 4_096, u32::MAX] {
        let meaning = FaultCode::Cuda(number).meaning();
        assert_eq!(meaning.class, FaultClass::Sticky, "{number}");
        assert_eq!(meaning.name, "");
    }
    assert_eq!(FaultCode::Cuda(700).meaning().name, "CUDA_ERROR_ILLEGAL_ADDRESS");
    assert_eq!(FaultCode::Signal(-3).class(), FaultClass::Process);
}
