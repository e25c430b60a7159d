//! Reading a copy back and comparing it with its source.

use std::{io, path::Path};

use nfs_wireless_client::File;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{
    Run,
    node::{Node, Origin},
    place::Place,
};
use crate::{
    context::Context,
    error::{ResultExt, local},
    exit::{Exit, Failure},
    local::open_source,
};

/// Bytes compared at once.
const CHUNK_BYTES: usize = 64 << 10;

impl Run<'_> {
    /// Compares a copy with its source, byte by byte; both are read anew.
    pub(super) async fn verify(&self, node: &Node, place: &Place, name: &[u8]) -> anyhow::Result<()> {
        let target = place.show(name);
        let mut copy: Box<dyn AsyncRead + Unpin> = match place {
            Place::Planned(_) => return Ok(()),
            Place::Local { directory, .. } => {
                let file = directory.read(name).map_err(|error| local(&directory.join(name), &error))?;
                Box::new(tokio::fs::File::from_std(file))
            }
            Place::Remote(place) => {
                let entry = place.client.lookup(place.handle, name).await.at(&target)?;
                Box::new(File::new(place.client.clone(), entry.handle))
            }
        };
        let mut source: Box<dyn AsyncRead + Unpin> = match &node.origin {
            Origin::Standard => return Ok(()),
            Origin::Local(path) => Box::new(tokio::fs::File::from_std(self.open(path)?)),
            Origin::Remote(file) => Box::new(File::new(file.client.clone(), file.handle)),
        };
        let difference = compare(&mut source, &mut copy, self.context).await;
        match difference.map_err(|error| super::stream::remote_error(error, &target))? {
            None => Ok(()),
            Some(offset) => {
                let text = format!("{target}: differs from {node} at byte {offset}; copy it again");
                Err(Failure::with(Exit::Mismatch, text))
            }
        }
    }

    fn open(&self, path: &Path) -> anyhow::Result<std::fs::File> {
        open_source(path, self.copy.follow).map_err(|error| local(path, &error))
    }
}

/// Returns where two streams begin to differ, if they do.
async fn compare(
    left: &mut (impl AsyncRead + Unpin),
    right: &mut (impl AsyncRead + Unpin),
    context: &Context,
) -> io::Result<Option<u64>> {
    let (mut a, mut b) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut offset = 0;
    loop {
        let count = fill(left, &mut a).await?;
        let other = fill(right, &mut b).await?;
        let difference = a[..count].iter().zip(&b[..other]).position(|(a, b)| a != b);
        if let Some(at) = difference.or_else(|| (count != other).then_some(count.min(other))) {
            return Ok(Some(offset + at as u64));
        }
        if count == 0 {
            return Ok(None);
        }
        offset += count as u64;
        context.activity.step();
    }
}

/// Reads until the buffer is full or the stream ends.
async fn fill(stream: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.read(&mut buffer[filled..]).await? {
            0 => break,
            count => filled += count,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn first_difference(left: &[u8], right: &[u8]) -> Option<u64> {
        let Command::Stat(arguments) = Cli::parse_from(["nfsw", "stat", "h:/"]).command else {
            panic!("stat")
        };
        let context = Context::new(&arguments.connection, &arguments.output);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(compare(&mut &left[..], &mut &right[..], &context)).unwrap()
    }

    #[test]
    fn the_first_difference_is_found_wherever_it_is() {
        let long = vec![7; 3 * CHUNK_BYTES];
        assert_eq!(first_difference(&long, &long), None);
        assert_eq!(first_difference(&long, &long[1..]), Some(long.len() as u64 - 1));
        let mut other = long.clone();
        other[CHUNK_BYTES + 3] = 8;
        assert_eq!(first_difference(&long, &other), Some(CHUNK_BYTES as u64 + 3));
        assert_eq!(first_difference(b"", b""), None);
    }
}
