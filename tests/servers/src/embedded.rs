//! The server of this project, as `nfsw serve` runs it.

use anyhow::Result;

use crate::{
    Server, client,
    program::{Program, Running},
};

/// Starts it.
pub(crate) fn start() -> Result<Box<dyn Server>> {
    let program = Program {
        path: client::binary().into(),
        arguments: |directory, port, _| {
            vec!["serve".into(), directory.into(), "--listen".into(), format!("127.0.0.1:{port}")]
        },
        export: |_| String::new(),
        one_port: true,
        udp: true,
    };
    Ok(Box::new(Running::start(program)?))
}
