//! How long a connection has waited in the kernel. The one file of the gateway with unsafe code: no library asks for
//! `TCP_INFO`.

use std::os::fd::AsRawFd;
use std::time::Duration;

use nix::libc;
use tokio::net::TcpStream;

/// The time since the client connected, or sent its last byte, of a connection that was just accepted. Zero if the
/// kernel does not say.
pub(super) fn waited(stream: &TcpStream) -> Duration {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut bytes = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).expect("it is short");
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    #[expect(unsafe_code, reason = "a system call")]
    // SAFETY: the descriptor is open, and `info` has room for `bytes` bytes.
    let done = unsafe {
        libc::getsockopt(stream.as_raw_fd(), level, name, info.as_mut_ptr().cast(), &raw mut bytes)
    };
    #[expect(unsafe_code, reason = "plain numbers")]
    // SAFETY: each field is a number, for which zero is a value too.
    let info = unsafe { info.assume_init() };
    if done == 0 { Duration::from_millis(info.tcpi_last_data_recv.into()) } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use gridpool_ipc::clock;

    use super::*;

    #[tokio::test]
    async fn a_connection_that_waits_is_as_old_as_that() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let before = clock::now();
        let mut client = std::net::TcpStream::connect(address).unwrap();
        // A while in which nothing comes.
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        client.read_exact(&mut [0]).unwrap_err();
        let (stream, _) = listener.accept().await.unwrap();
        let waited = waited(&stream);
        assert!(
            waited >= Duration::from_millis(150)
                && waited <= before.elapsed() + Duration::from_millis(50)
        );
    }
}
