//! The channel between predecessor and successor: messages with descriptors over a Unix socket.
//!
//! ```text
//!   message   length:4 (little-endian), with the descriptors | JSON
//! ```

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::MOST_DESCRIPTORS;

/// The longest message in bytes: counters of many interfaces and queues fit.
const LONGEST: u32 = 64 << 20;

/// One end of the channel.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

impl Channel {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self(socket)
    }

    /// Sends a message with copies of these descriptors.
    ///
    /// # Errors
    ///
    /// The system's; `InvalidInput` beyond [`MOST_DESCRIPTORS`].
    pub(super) fn send(
        &mut self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let json = serde_json::to_vec(message)?;
        let length = u32::try_from(json.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("a message is too long"))?.to_le_bytes();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors))
        {
            let reason = format!("more than {MOST_DESCRIPTORS} interfaces and listeners");
            return Err(io::Error::new(ErrorKind::InvalidInput, reason));
        }
        let sent = sendmsg(&self.0, &[IoSlice::new(&length)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.0.write_all(&length[sent..])?;
        self.0.write_all(&json)
    }

    /// Receives a message and its descriptors, and waits for it if `patience` allows.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` if the other process has ended; `WouldBlock` or `TimedOut` after `patience`; `InvalidData`
    /// for a message that this program does not know.
    pub(super) fn receive<T: DeserializeOwned>(
        &mut self,
        patience: Duration,
    ) -> io::Result<(T, Vec<OwnedFd>)> {
        self.0.set_read_timeout(Some(patience))?;
        let mut length = [0; 4];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let parts = &mut [IoSliceMut::new(&mut length)];
        let received = recvmsg(&self.0, parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        if received.bytes == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        self.0.read_exact(&mut length[received.bytes..])?;
        let length = u32::from_le_bytes(length);
        if length > LONGEST {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut json = vec![0; length as usize];
        self.0.read_exact(&mut json)?;
        Ok((serde_json::from_slice(&json)?, descriptors))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Seek;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn pair() -> (Channel, Channel) {
        let (a, b) = UnixStream::pair().unwrap();
        (Channel::new(a), Channel::new(b))
    }

    #[test]
    fn message_arrives_with_its_descriptors_in_order() {
        let (mut a, mut b) = pair();
        let mut files: Vec<File> = (0..3).map(|_| tempfile()).collect();
        for (n, file) in files.iter_mut().enumerate() {
            write!(file, "file {n}").unwrap();
        }
        let borrowed: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        a.send(&"first", &borrowed).unwrap();
        a.send(&vec![7; 100_000], &[]).unwrap_or_else(|error| panic!("{error}"));
        let (text, received) = b.receive::<String>(PATIENCE).unwrap();
        assert_eq!((&*text, received.len()), ("first", 3));
        for (n, descriptor) in received.into_iter().enumerate() {
            let (mut file, mut text) = (File::from(descriptor), String::new());
            file.rewind().unwrap();
            file.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("file {n}"));
        }
        let (numbers, received) = b.receive::<Vec<u32>>(PATIENCE).unwrap();
        assert_eq!((numbers.len(), received.len()), (100_000, 0));
    }

    fn tempfile() -> File {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fp-ch-{}-{number}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn end_of_the_other_process_and_silence_are_errors() {
        let (mut a, b) = pair();
        let silent = a.receive::<String>(Duration::from_millis(10)).unwrap_err();
        assert!(matches!(silent.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{silent}");
        drop(b);
        let ended = a.receive::<String>(PATIENCE).unwrap_err();
        assert_eq!(ended.kind(), ErrorKind::UnexpectedEof);
        assert!(a.send(&"text", &[]).is_err());
    }

    #[test]
    fn too_many_descriptors_and_unknown_messages_are_refused() {
        let (mut a, mut b) = pair();
        let file = tempfile();
        let many = vec![file.as_fd(); MOST_DESCRIPTORS + 1];
        let refused = a.send(&"many", &many).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        a.send(&"most", &many[1..]).unwrap();
        assert_eq!(b.receive::<String>(PATIENCE).unwrap().1.len(), MOST_DESCRIPTORS);
        a.send(&5, &[]).unwrap();
        let unknown = b.receive::<String>(PATIENCE).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::InvalidData);
    }
}
