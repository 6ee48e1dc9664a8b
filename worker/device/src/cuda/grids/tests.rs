//! Programs over tensors of grids, on a device that obeys a script and computes with the reference.

#![expect(unsafe_code, reason = "gives a stream addresses of its device's memory")]

use std::mem::ManuallyDrop;

use gridpool_protocol::tensor::pipeline::StepProgram;

use super::*;
use crate::cuda::compute::{ComputeStream, GridKernels};
use crate::cuda::driver::Driver;
use crate::cuda::fake;
use crate::fault::Fault;
use crate::grids::{GridsOnHost, HostTensors};

/// Grids of a tensor, of irregular colours. The second one has a cell that is no colour.
fn cells(count: usize, cells: usize) -> Vec<u8> {
    let color = |at: usize| u8::try_from((at * at + 3 * at) / 5 % 7 % 4).unwrap();
    let mut all: Vec<u8> = (0..count * cells).map(color).collect();
    if count > 1 {
        all[cells + cells / 2] = 77;
    }
    all
}

fn memory(driver: &Driver, bytes: usize, fill: u8, stream: &ComputeStream) -> *mut u8 {
    let start = driver.allocate(bytes.max(1)).unwrap();
    let start = std::ptr::with_exposed_provenance_mut(usize::try_from(start.number()).unwrap());
    upload(stream, start, &vec![fill; bytes]);
    start
}

fn upload(stream: &ComputeStream, to: *mut u8, from: &[u8]) {
    // SAFETY: the memory was allocated for them, and all of it lives until the wait.
    unsafe { stream.upload(to, from) }.unwrap();
    stream.wait().unwrap();
}

fn download(stream: &ComputeStream, from: *mut u8, bytes: usize) -> Vec<u8> {
    let mut to = vec![0; bytes];
    // SAFETY: as above.
    unsafe { stream.download(&mut to, from) }.unwrap();
    stream.wait().unwrap();
    to
}

/// A tensor and its program on a new device of this thread, all other bytes of which are no colour.
pub(in crate::cuda) struct OnDevice {
    // The stub's device is of this thread: no other test may get the stream.
    stream: ManuallyDrop<ComputeStream>,
    kernels: GridKernels,
    run: GridsOnDevice,
    places: GridPlaces,
}

impl OnDevice {
    pub(in crate::cuda) fn new(step: &Arc<GridStep>, run: GridsRun, cells: &[u8]) -> Self {
        Self::sized(step, run, cells, None)
    }

    fn sized(step: &Arc<GridStep>, run: GridsRun, cells: &[u8], sizes: Option<&[u8]>) -> Self {
        let driver = fake::driver("").unwrap();
        let mut stream = ManuallyDrop::new(ComputeStream::over(driver).unwrap());
        let kernels = GridKernels::load(&mut stream, step.program().solver().is_some()).unwrap();
        let (count, bytes) = (run.count(), run.count() * run.result_cells());
        let run = GridsOnDevice::new(step, run).unwrap();
        let mut tables = vec![0; run.table_bytes()];
        run.write_tables(&mut tables);
        let new = |bytes: usize| memory(&driver, bytes, 99, &stream);
        let places = GridPlaces {
            tables: new(tables.len()),
            scratch: new(run.scratch_bytes()),
            grids: new(cells.len()),
            sizes: sizes.map(|sizes| new(sizes.len())),
            results: new(bytes),
            status: new(2 * count),
            result_sizes: step.gives_sizes().then(|| new(16 * count)),
        };
        if let (Some(place), Some(sizes)) = (places.sizes, sizes) {
            upload(&stream, place, sizes);
        }
        upload(&stream, places.tables, &tables);
        upload(&stream, places.grids, cells);
        Self { stream, kernels, run, places }
    }

    fn addresses(&self) -> GridPlaces<DeviceAddress> {
        let each =
            self.places.each(|place| Ok::<_, Fault>(DeviceAddress::new(place.addr() as u64)));
        each.unwrap()
    }

    /// Runs it, and waits for what it queued unless the worker ends.
    pub(in crate::cuda) fn run(&mut self) -> Result<(), Fault> {
        let Self { stream, kernels, run, places } = self;
        // SAFETY: the memory has the lengths that the layout says, and lives as long as the device.
        let queued = unsafe { stream.run_grids(kernels, run, places) };
        match queued.and_then(|()| stream.wait()) {
            Err(fault) if !fault.ends_worker() => stream.wait().and(Err(fault)),
            ran => ran,
        }
    }
}

#[test]
fn kernels_over_a_tensor_give_what_the_reference_gives_and_a_failed_grid_is_zeros() {
    for text in [
        "rot90",
        "replace(1, 5) | dmirror",
        "rot90 | fill(5, ofcolor(0))",
        "trim",
        "crop(1, 1, 2, 3)",
        "upscale(3) | rot90",
        "canvas(4, 2, 9)",
        "o_g(5) | argmax(size) | fill(6)",
        "hsplit(2) | apply(rot180) | hconcat",
        "vsplit(2) | nth(1)",
        "vsplit(3) | apply(o_g(1) | merge | cover) | vconcat | upscale(2)",
        "hsplit(2) | cellwise(9)",
    ] {
        for size in [[6, 6], [5, 8], [1, 1], [33, 40]] {
            let step = Arc::new(GridStep::compile(text).unwrap());
            let Ok(run) = step.run([5, size[0], size[1]]) else {
                assert!(text.contains("upscale") && size == [33, 40], "{text} {size:?}");
                continue;
            };
            let cells = cells(5, usize::from(run.size[0]) * usize::from(run.size[1]));
            let bytes = 5 * run.result_cells();
            let (mut results, mut status) = (vec![0; bytes], vec![0; 10]);
            let tensors = HostTensors {
                grids: &cells,
                sizes: None,
                results: &mut results,
                status: &mut status,
                result_sizes: &mut [],
            };
            GridsOnHost::default().run(&step, &run, tensors);
            assert_eq!(status[2], 1, "{text}: a cell of the second is no colour");

            let mut own = OnDevice::new(&step, run, &cells);
            own.run().unwrap();
            assert_eq!(download(&own.stream, own.places.status, 10), status, "{text} {size:?}");
            let got = download(&own.stream, own.places.results, bytes);
            assert_eq!(got, results, "{text} {size:?}");
        }
    }
}

#[test]
fn kernels_over_planes_give_what_the_reference_gives_whatever_the_sizes_are() {
    let own = |text: &str, result, takes_sizes| {
        let program = StepProgram { text: text.to_owned(), result: Some(result) };
        Arc::new(GridStep::new(&program, takes_sizes).unwrap())
    };
    let subgrid = "x1 = objects(I, F, F, T)\nx2 = argmax(x1, size)\nO = subgrid(x2, I)";
    for text in [
        "rot90",
        "compress",
        "o_g(3) | argmax(size) | subgrid",
        "O = rot90(I)",
        subgrid,
        "O = upscale(I, THREE)",
    ] {
        for (size, result) in
            [([6, 9], [9, 6]), ([33, 40], [40, 33]), ([8, 8], [3, 2]), ([1, 1], [64, 64])]
        {
            for takes_sizes in [false, true] {
                let (step, count) = (own(text, result, takes_sizes), 9);
                let run = step.run([count, size[0], size[1]]).unwrap();
                let count = run.count();
                let cells = cells(count, run.area());
                let [h, w] = size.map(|side| i64::try_from(side).unwrap());
                let sizes = [
                    [h, w],
                    [h, w],
                    [1, w],
                    [h, 1],
                    [0, 1],
                    [h + 1, 1],
                    [1, -1],
                    [257, 1],
                    [i64::MIN, i64::MAX],
                ];
                let sizes: Vec<u8> =
                    sizes.concat().iter().flat_map(|side| side.to_le_bytes()).collect();
                let sizes = takes_sizes.then_some(&*sizes);
                let (mut results, mut status) =
                    (vec![0; count * run.result_cells()], vec![0; 2 * count]);
                let mut result_sizes = vec![0; 16 * count];
                let tensors = HostTensors {
                    grids: &cells,
                    sizes,
                    results: &mut results,
                    status: &mut status,
                    result_sizes: &mut result_sizes,
                };
                GridsOnHost::default().run(&step, &run, tensors);
                let place = format!("{text} {size:?} {result:?} {takes_sizes}");
                assert_eq!(status[2], 1, "{place}: a cell of the second is no colour");
                assert!(
                    !takes_sizes || status[8..] == GridsRun::BAD_SIZE.repeat(5),
                    "{place}: {status:?}"
                );

                let mut own = OnDevice::sized(&step, run, &cells, sizes);
                for _ in 0..2 {
                    own.run().unwrap();
                    let got = |from: *mut u8, bytes| download(&own.stream, from, bytes);
                    assert_eq!(got(own.places.status, status.len()), status, "{place}");
                    assert_eq!(got(own.places.results, results.len()), results, "{place}");
                    let sizes = own.places.result_sizes.unwrap();
                    assert_eq!(got(sizes, result_sizes.len()), result_sizes, "{place}");
                }
            }
        }
    }
}

#[test]
fn more_grids_than_a_launch_of_a_solver_takes_are_launched_in_parts() {
    let program = StepProgram { text: "O = vmirror(I)".to_owned(), result: Some([1, 2]) };
    let step = Arc::new(GridStep::new(&program, false).unwrap());
    let count = 2 * SOLVED_MAX + 3;
    let run = step.run([count as u64, 1, 2]).unwrap();
    let cells: Vec<u8> = (0..2 * count).map(|at| u8::try_from(at % 10).unwrap()).collect();
    let mut own = OnDevice::new(&step, run, &cells);
    own.run().unwrap();
    let want: Vec<u8> = cells.as_chunks::<2>().0.iter().flat_map(|[a, b]| [*b, *a]).collect();
    assert!(download(&own.stream, own.places.results, 2 * count) == want);
    assert_eq!(download(&own.stream, own.places.status, 2 * count), vec![0; 2 * count]);
    assert_eq!(own.run.solved(&own.addresses()).len(), 3);
}

#[test]
fn a_fault_of_the_driver_is_reported() {
    let stream = ComputeStream::over(fake::driver("").unwrap()).unwrap();
    let mut stream = ManuallyDrop::new(stream);
    fake::fail("cuModuleLoadData", 218);
    let fault = GridKernels::load(&mut stream, true).unwrap_err();
    assert_eq!(fault, Fault::Cuda { call: "cuModuleLoadData", code: 218 });
}

#[test]
fn tables_have_the_size_and_the_start_of_every_grid() {
    let step = Arc::new(GridStep::compile("rot90").unwrap());
    let of = GridsOnDevice::new(&step, step.run([3, 2, 5]).unwrap()).unwrap();
    let mut tables = vec![7; of.table_bytes()];
    of.write_tables(&mut tables);
    assert_eq!(tables[..6], [2, 5, 2, 5, 2, 5]);
    let offsets = tables[of.tables.offsets_start()..].as_chunks::<4>().0;
    assert_eq!(offsets.iter().map(|o| u32::from_le_bytes(*o)).collect::<Vec<_>>(), [0, 10, 20, 30]);
    assert_eq!(of.cleared_bytes(), 0, "kernels that work in place clear by themselves");
    assert!(GridsOnDevice::new(&step, step.run([0, 2, 5]).unwrap()).is_none());
}
