//! Requests for models: which of them run together, and their rows.
//!
//! Those of one model are joined to as many rows as a run of it takes, in their order: so a run is the same each time,
//! and part of it may be left out. A worker that is given them one by one would join them as they come.

use gridpool_client::{ClientError, Job, ModelInput, TensorOutputs};
use gridpool_protocol::tensor::model::ModelInfo;
use gridpool_protocol::tensor::{DataType, Tensor, TensorError};

/// Most rows into which the requests of a capsule are cut: each is an entry of a list.
const ROWS_MAX: u64 = 65_536;

/// Tensors with their bytes.
pub(super) type Tensors = Vec<(Tensor, Vec<u8>)>;

/// A request, or a row of one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) model: String,
    pub(super) inputs: Tensors,
}

/// What runs together, as one job.
#[derive(Debug, PartialEq)]
pub(super) struct Joined {
    whole: Request,
    /// Of all members; 0 if nothing can be joined to it.
    rows: u64,
    /// The requests by their places, with their rows.
    members: Vec<Member>,
}

/// A request in a run: its place among those that were chosen, and its rows.
pub(super) type Member = (usize, u64);

impl Request {
    /// Its rows, if all inputs have as many.
    fn rows(&self) -> Option<u64> {
        let rows = |(tensor, _): &(Tensor, _)| {
            let has_rows = |rows: &u64| *rows > 0 && tensor.datatype() != DataType::Bytes;
            tensor.shape().first().copied().filter(has_rows)
        };
        let first = self.inputs.first().and_then(rows)?;
        self.inputs.iter().all(|input| rows(input) == Some(first)).then_some(first)
    }

    /// Whether its rows may stand behind those of another; both have rows.
    fn is_like(&self, other: &Self) -> bool {
        let kind = |(tensor, _): &(Tensor, _)| {
            (tensor.name().to_owned(), tensor.datatype(), tensor.shape()[1..].to_vec())
        };
        self.model == other.model && self.inputs.iter().map(kind).eq(other.inputs.iter().map(kind))
    }
}

impl Joined {
    /// The requests, joined as far as their models take rows.
    pub(super) fn of<'a>(
        requests: impl Iterator<Item = &'a Request>,
        models: &[ModelInfo],
    ) -> Result<Vec<Self>, TensorError> {
        let mut runs: Vec<Self> = Vec::new();
        // Those that are not full.
        let mut open: Vec<usize> = Vec::new();
        for (place, request) in requests.enumerate() {
            let most = rows_max(models, &request.model);
            let rows = request.rows().filter(|_| most > 1).unwrap_or(0);
            let has_room = |run: &Self| run.rows + rows <= most && run.whole.is_like(request);
            let found = open.iter().position(|&at| rows > 0 && has_room(&runs[at]));
            let Some(found) = found else {
                if (1..most).contains(&rows) {
                    open.push(runs.len());
                }
                runs.push(Self { whole: request.clone(), rows, members: vec![(place, rows)] });
                continue;
            };
            let run = &mut runs[open[found]];
            run.add(place, request, rows)?;
            if run.rows == most {
                open.remove(found);
            }
        }
        Ok(runs)
    }

    fn add(&mut self, place: usize, request: &Request, rows: u64) -> Result<(), TensorError> {
        for ((whole, data), (tensor, more)) in self.whole.inputs.iter_mut().zip(&request.inputs) {
            let mut shape = whole.shape().to_vec();
            shape[0] += tensor.shape()[0];
            *whole = Tensor::new(whole.name(), whole.datatype(), shape)?;
            data.extend_from_slice(more);
        }
        self.rows += rows;
        self.members.push((place, rows));
        Ok(())
    }

    /// Its job, and who is in it.
    pub(super) fn job(self) -> Result<(Job<TensorOutputs>, Vec<Member>), ClientError> {
        let inputs = ModelInput::from_tensors(self.whole.inputs).map_err(ClientError::Tensors)?;
        let job = Job::model(self.whole.model, inputs).map_err(ClientError::Tensors)?;
        Ok((job, self.members))
    }
}

/// The outputs of each request in a run.
pub(super) fn outputs_of(members: &[Member], outputs: Tensors) -> Vec<(usize, Tensors)> {
    if let [(place, _)] = members {
        return vec![(*place, outputs)];
    }
    let mut first = 0;
    let of_member = |&(place, rows): &Member| {
        let part = outputs.iter().map(|(tensor, data)| part(tensor, data, first, rows));
        let part = part.collect();
        first += rows;
        (place, part)
    };
    members.iter().map(of_member).collect()
}

/// Some rows of a tensor.
fn part(tensor: &Tensor, data: &[u8], first: u64, rows: u64) -> (Tensor, Vec<u8>) {
    let all = tensor.shape()[0].max(1);
    let at = |row: u64| usize::try_from(data.len() as u64 / all * row).unwrap_or(usize::MAX);
    let mut shape = tensor.shape().to_vec();
    shape[0] = rows;
    let part = Tensor::new(tensor.name(), tensor.datatype(), shape);
    (part.expect("it is smaller than the whole"), data[at(first)..at(first + rows)].to_vec())
}

/// The requests, each cut into its rows if its model takes rows; `None` if there is nothing to cut, or too much.
pub(super) fn cut(requests: &[Request], models: &[ModelInfo]) -> Option<Vec<Request>> {
    let rows = |request: &Request| {
        request.rows().filter(|rows| *rows > 1 && rows_max(models, &request.model) > 1)
    };
    let count: u64 = requests.iter().map(|request| rows(request).unwrap_or(1)).sum();
    if count > ROWS_MAX || !requests.iter().any(|request| rows(request).is_some()) {
        return None;
    }
    let of_request = |request: &Request| match rows(request) {
        None => vec![request.clone()],
        Some(all) => {
            let row = |row| Request {
                name: format!("{} row {row}", request.name),
                model: request.model.clone(),
                inputs: request.inputs.iter().map(|(of, data)| part(of, data, row, 1)).collect(),
            };
            (0..all).map(row).collect()
        }
    };
    Some(requests.iter().flat_map(of_request).collect())
}

/// Most rows of a run of this model; 1 if it joins none, or is not there.
fn rows_max(models: &[ModelInfo], name: &str) -> u64 {
    let model = models.iter().find(|model| model.name == name);
    model.map_or(1, |model| model.max_batch.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, max_batch: u32) -> ModelInfo {
        ModelInfo { max_batch, ..ModelInfo::unavailable(name, String::new()) }
    }

    /// A request of rows of two bytes each, which begin with these.
    fn request(name: &str, model: &str, rows: &[u8]) -> Request {
        let tensor = Tensor::new("x", DataType::Uint8, vec![rows.len() as u64, 2]).unwrap();
        let data = rows.iter().flat_map(|row| [*row, 0]).collect();
        Request { name: name.to_owned(), model: model.to_owned(), inputs: vec![(tensor, data)] }
    }

    fn members(requests: &[Request], models: &[ModelInfo]) -> Vec<Vec<Member>> {
        let runs = Joined::of(requests.iter(), models).unwrap();
        runs.into_iter().map(|run| run.members).collect()
    }

    #[test]
    fn requests_of_one_model_and_one_shape_are_joined_up_to_the_rows_of_a_run() {
        let models = [model("m", 4), model("alone", 1)];
        let wide = Tensor::new("x", DataType::Uint8, vec![1, 3]).unwrap();
        let scalar = Tensor::new("x", DataType::Uint8, vec![]).unwrap();
        let requests = [
            request("a", "m", &[1, 2]),
            request("b", "alone", &[3]),
            request("c", "m", &[4]),
            Request { inputs: vec![(wide, vec![0; 3])], ..request("d", "m", &[]) },
            request("e", "m", &[5, 6]),
            request("f", "m", &[7; 9]),
            request("g", "m", &[8]),
            request("h", "gone", &[9]),
            request("i", "alone", &[3]),
            // A scalar has no rows.
            Request { inputs: vec![(scalar, vec![0])], ..request("j", "m", &[]) },
            request("k", "m", &[1]),
        ];
        let expected: &[&[Member]] = &[
            &[(0, 2), (2, 1), (6, 1)],
            &[(1, 0)],
            &[(3, 1)],
            &[(4, 2), (10, 1)],
            &[(5, 9)],
            &[(7, 0)],
            &[(8, 0)],
            &[(9, 0)],
        ];
        assert_eq!(members(&requests, &models), expected);
        let runs = Joined::of(requests.iter(), &models).unwrap();
        let (tensor, data) = &runs[0].whole.inputs[0];
        assert_eq!((tensor.shape(), &**data), (&[4, 2][..], &[1, 0, 2, 0, 4, 0, 8, 0][..]));
        // What comes out is told apart again.
        let outputs = outputs_of(&runs[0].members, vec![(tensor.clone(), data.clone())]);
        let of = |at: usize| (outputs[at].0, &outputs[at].1);
        assert_eq!(of(0), (0, &requests[0].inputs));
        assert_eq!(of(1), (2, &requests[2].inputs));
        assert_eq!(of(2), (6, &requests[6].inputs));
    }

    #[test]
    fn requests_are_cut_into_rows_where_their_model_takes_rows() {
        let models = [model("m", 4), model("alone", 1)];
        let requests =
            [request("a", "m", &[1, 2]), request("b", "alone", &[3, 4]), request("c", "m", &[5])];
        let rows = cut(&requests, &models).unwrap();
        let names: Vec<_> = rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names, ["a row 0", "a row 1", "b", "c"]);
        assert_eq!(rows[1].inputs, request("", "", &[2]).inputs);
        assert_eq!(members(&rows, &models), [&[(0, 1), (1, 1), (3, 1)][..], &[(2, 0)]]);
        assert_eq!(cut(&requests[1..], &models), None);
        let many = request("a", "m", &vec![1; 70_000]);
        assert_eq!(cut(&[many], &models), None);
    }
}
