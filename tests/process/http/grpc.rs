//! gRPC as its users see it: with the client of tonic, which was not written here, and over a plain socket.

mod abuse;
mod calls;
pub(super) mod client;
mod doors;
mod errors;
mod frames;
mod lifecycle;
mod streams;

use gridpool_inference::{Choice, InferInputTensor, ModelInferRequest, ModelInferResponse};
use gridpool_protocol::batch::Grid;

use super::{http, until_status_of};
use crate::pool::{Pool, Setup};

use client::Grpc;

/// A pool that serves both protocols on ports that the system chose, once it is ready.
fn served(setup: Setup) -> Pool {
    let pool = with_both(setup).start();
    until_status_of(&pool, "/v2/health/ready", 200);
    pool
}

pub(super) fn with_both(setup: Setup) -> Setup {
    super::with_http(setup).env("GRIDPOOL_GRPC", "127.0.0.1:0")
}

pub(super) fn address(pool: &Pool) -> String {
    http(pool).grpc
}

fn tensor(name: &str, datatype: &str, shape: &[usize]) -> InferInputTensor {
    InferInputTensor {
        name: name.to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.iter().map(|&side| i64::try_from(side).expect("a side is small")).collect(),
        ..InferInputTensor::default()
    }
}

/// A request to turn these grids.
fn request(grids: &[Grid]) -> ModelInferRequest {
    let mut cells = vec![0; grids.len() * 900];
    let mut sizes = Vec::new();
    for (grid, place) in grids.iter().zip(cells.chunks_exact_mut(900)) {
        for (row, to) in grid.cells().chunks_exact(grid.w()).zip(place.chunks_exact_mut(30)) {
            to[..grid.w()].copy_from_slice(row);
        }
        for side in [grid.h(), grid.w()] {
            sizes.extend(u32::try_from(side).expect("a side is small").to_le_bytes());
        }
    }
    ModelInferRequest {
        model_name: "rot90".to_owned(),
        inputs: vec![
            tensor("GRID", "UINT8", &[grids.len(), 30, 30]),
            tensor("SIZE", "INT32", &[grids.len(), 2]),
        ],
        raw_input_contents: vec![cells.into(), sizes.into()],
        ..ModelInferRequest::default()
    }
}

fn small() -> Grid {
    Grid::from_rows(&[[1, 2, 3], [4, 5, 6]]).expect("a grid")
}

/// The request of a test that needs no more than one.
pub(super) fn one() -> ModelInferRequest {
    request(&[small()])
}

fn with(mut request: ModelInferRequest, name: &str, value: Choice) -> ModelInferRequest {
    request.parameters.insert(name.to_owned(), value.into());
    request
}

/// Checks that an answer has the small grid, turned.
#[track_caller]
pub(super) fn is_turned(answer: &ModelInferResponse) {
    let names: Vec<_> = answer.outputs.iter().map(|output| &*output.name).collect();
    assert_eq!(names, ["GRID", "SIZE", "STATUS"]);
    let cells = &answer.raw_output_contents[0];
    assert_eq!([&cells[..2], &cells[30..32], &cells[60..62]].concat(), [4, 1, 5, 2, 6, 3]);
    assert_eq!(answer.raw_output_contents[1], [3_u32.to_le_bytes(), 2_u32.to_le_bytes()].concat());
}

fn text<'a>(answer: &'a ModelInferResponse, name: &str) -> &'a str {
    match &answer.parameters[name].choice {
        Some(Choice::String(text)) => text,
        other => panic!("{name} is {other:?}"),
    }
}

fn ask(pool: &Pool, request: ModelInferRequest) -> Result<ModelInferResponse, tonic::Status> {
    Grpc::open(&address(pool)).ask("ModelInfer", request)
}
