//! What Triton has and gridpool has not, over both protocols, and what to do instead.

pub(super) const NO_CUDA_MEMORY: &str = "CUDA shared memory is not served: send the tensors in the request, as binary \
                                         data (raw_input_contents of gRPC); gridpool copies them to the device";
pub(super) const NO_TRACES: &str = "traces are not set by clients: start the pool with --trace; the response \
                                    parameter `receipt` says where and when a request ran";
pub(super) const NO_LOG: &str = "the log is not set by clients: start the pool with GRIDPOOL_LOG";

/// Why Triton serves this path and gridpool does not.
pub(super) fn of_path(path: &str) -> Option<&'static str> {
    let parts: Vec<_> = path.split('/').skip_while(|part| part.is_empty()).collect();
    match parts[..] {
        ["v2", "cudasharedmemory", ..] => Some(NO_CUDA_MEMORY),
        ["v2", "logging"] => Some(NO_LOG),
        ["v2", "trace", "setting"] | ["v2", "models", .., "trace", "setting"] => Some(NO_TRACES),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_triton_alone_say_what_to_do_instead() {
        for (path, why) in [
            ("/v2/cudasharedmemory/status", Some(NO_CUDA_MEMORY)),
            ("/v2/cudasharedmemory/region/r/register", Some(NO_CUDA_MEMORY)),
            ("/v2/logging", Some(NO_LOG)),
            ("/v2/trace/setting", Some(NO_TRACES)),
            ("/v2/models/m/trace/setting", Some(NO_TRACES)),
            ("/v2/models/m", None),
            ("/v2/logging/more", None),
            ("/trace/setting", None),
            ("", None),
        ] {
            assert_eq!(of_path(path), why, "{path}");
        }
    }
}
