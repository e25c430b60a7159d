//! `nfsw._nfsw`: files, servers, copies and syncs for the package nfsw of Python.
//!
//! It translates between Python and the crates nfs-wireless-client and nfs-files: Python calls and waits, its other threads go on, and
//! signals are looked at. What is only Python is in `nfsw/*.py`.

mod buffer;
mod copy;
mod error;
mod file;
mod process;
mod server;
mod waiting;

use pyo3::prelude::*;

#[pymodule]
fn _nfsw(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<error::Error>())?;
    module.add("CopyError", module.py().get_type::<error::CopyError>())?;
    module.add_class::<file::File>()?;
    module.add_class::<server::Server>()?;
    module.add_class::<copy::Counts>()?;
    module.add_function(wrap_pyfunction!(copy::run, module)?)?;
    module.add_function(wrap_pyfunction!(copy::start, module)?)?;
    module.add("BUFFER_BYTES", file::BUFFER_BYTES)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
