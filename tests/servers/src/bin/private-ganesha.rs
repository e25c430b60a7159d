//! nfs-ganesha for tests in other languages: `private-ganesha ADDRESS` serves a directory on an address of the loopback until its input ends.
//!
//! It prints the directory, which is also the path of the export, once the server answers.

#![forbid(unsafe_code)]

use std::{error::Error, io};

use private_servers::ganesha::{Ganesha, Options};

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("usage: private-ganesha ADDRESS")?;
    let server = Ganesha::start(Options { at: Some(address.parse()?), ..Options::default() });
    println!("{}", server.export().display());
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}
