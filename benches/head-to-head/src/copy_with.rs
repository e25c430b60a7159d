//! Copies of a file by crates that have no command of their own, written as their documentation shows.

use std::{fs, io::Write};

use anyhow::{Context, bail};
use nfs3_client::{
    Nfs3ConnectionBuilder,
    nfs3_types::{
        nfs3::{
            COMMIT3args, CREATE3args, LOOKUP3args, Nfs3Result, READ3args, WRITE3args, createhow3, diropargs3,
            filename3, sattr3, stable_how,
        },
        rpc::{auth_unix, opaque_auth},
        xdr_codec::Opaque,
    },
    tokio::TokioConnector,
};

/// Bytes of a READ or WRITE: what nfs-cp takes, too, where the server allows it.
const CHUNK: usize = 1 << 20;

/// One end on the server, as in its URL.
#[derive(Debug)]
struct Remote<'a> {
    host: &'a str,
    directory: &'a str,
    file: &'a str,
    nfs_port: u16,
    mount_port: u16,
}

impl<'a> Remote<'a> {
    fn parse(url: &'a str) -> Option<Self> {
        let (place, ports) = url.strip_prefix("nfs://")?.split_once("?nfsport=")?;
        let (nfs_port, mount_port) = ports.split_once("&mountport=")?;
        let (path, file) = place.rsplit_once('/')?;
        let slash = path.find('/')?;
        let (nfs_port, mount_port) = (nfs_port.parse().ok()?, mount_port.parse().ok()?);
        Some(Self { host: &path[..slash], directory: &path[slash..], file, nfs_port, mount_port })
    }
}

/// Copies from the first to the second; one of them is a URL.
pub(crate) fn run(name: &str, from: &str, to: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let reads = from.starts_with("nfs://");
    let (url, local) = if reads { (from, to) } else { (to, from) };
    let remote = Remote::parse(url)
        .with_context(|| format!("{url}: no nfs://HOST/DIRECTORY/FILE?nfsport=N&mountport=N"))?;
    match (name, reads) {
        ("nfs3_client", true) => runtime.block_on(nfs3_client_read(&remote, local)),
        ("nfs3_client", false) => runtime.block_on(nfs3_client_write(&remote, local)),
        #[cfg(feature = "nfs-rs")]
        ("nfs-rs", _) => runtime.block_on(nfs_rs(&remote, local, reads)),
        _ => bail!("this program was built without {name}"),
    }
}

type Connection = nfs3_client::Nfs3Connection<nfs3_client::tokio::TokioIo<tokio::net::TcpStream>>;

async fn connect(remote: &Remote<'_>) -> anyhow::Result<Connection> {
    let user = auth_unix { stamp: 0, machinename: Opaque::borrowed(b"mobile"), uid: 0, gid: 0, gids: vec![] };
    let builder = Nfs3ConnectionBuilder::new(TokioConnector, remote.host, remote.directory)
        .nfs3_port(remote.nfs_port)
        .mount_port(remote.mount_port)
        .credential(opaque_auth::auth_unix(&user));
    Ok(builder.mount().await?)
}

fn place<'a>(connection: &Connection, remote: &Remote<'a>) -> diropargs3<'a> {
    diropargs3 { dir: connection.root_nfs_fh3(), name: filename3(Opaque::borrowed(remote.file.as_bytes())) }
}

fn ok<T, E: std::fmt::Debug>(result: Nfs3Result<T, E>) -> anyhow::Result<T> {
    match result {
        Nfs3Result::Ok(value) => Ok(value),
        Nfs3Result::Err((status, _)) => bail!("the server says {status:?}"),
    }
}

async fn nfs3_client_read(remote: &Remote<'_>, local: &str) -> anyhow::Result<()> {
    let mut connection = connect(remote).await?;
    let what = place(&connection, remote);
    let file = ok(connection.lookup(&LOOKUP3args { what }).await?)?.object;
    let mut copy = fs::File::create(local)?;
    let mut offset = 0;
    loop {
        let call = READ3args { file: file.clone(), offset, count: CHUNK as u32 };
        let reply = ok(connection.read(&call).await?)?;
        copy.write_all(&reply.data)?;
        offset += reply.data.len() as u64;
        if reply.eof {
            break;
        }
    }
    connection.unmount().await?;
    Ok(())
}

async fn nfs3_client_write(remote: &Remote<'_>, local: &str) -> anyhow::Result<()> {
    let data = fs::read(local)?;
    let mut connection = connect(remote).await?;
    let create =
        CREATE3args { where_: place(&connection, remote), how: createhow3::UNCHECKED(sattr3::default()) };
    ok(connection.create(&create).await?)?;
    let what = place(&connection, remote);
    let file = ok(connection.lookup(&LOOKUP3args { what }).await?)?.object;
    let mut offset = 0;
    while offset < data.len() {
        let rest = &data[offset..data.len().min(offset + CHUNK)];
        let call = WRITE3args {
            file: file.clone(),
            offset: offset as u64,
            count: rest.len() as u32,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(rest),
        };
        let count = ok(connection.write(&call).await?)?.count;
        anyhow::ensure!(count > 0, "the server wrote nothing");
        offset += count as usize;
    }
    ok(connection.commit(&COMMIT3args { file, offset: 0, count: 0 }).await?)?;
    connection.unmount().await?;
    Ok(())
}

#[cfg(feature = "nfs-rs")]
async fn nfs_rs(remote: &Remote<'_>, local: &str, reads: bool) -> anyhow::Result<()> {
    use nfs_rs::{BufferedFile, OPEN_READ, parse_url_and_mount, write_all};

    let Remote { host, directory, file, nfs_port, mount_port } = remote;
    let url = format!(
        "nfs://{host}{directory}?version=3&nfsport={nfs_port}&mountport={mount_port}&noresvport=true"
    );
    let mount: std::sync::Arc<dyn nfs_rs::Mount> = std::sync::Arc::from(parse_url_and_mount(&url).await?);
    if reads {
        let opened = mount.open_path(file, OPEN_READ).await?;
        let size = mount.getattr(opened.fh.clone()).await?.filesize;
        let reader = BufferedFile::new(mount.clone(), opened.fh);
        let data = reader.read_at(0, u32::try_from(size)?).await?;
        reader.close().await?;
        fs::write(local, data)?;
    } else {
        let created = mount.create_path(file, Some(0o644)).await?;
        write_all(&*mount, created.fh.clone(), 0, fs::read(local)?.into()).await?;
        mount.close(created.fh).await?;
    }
    mount.umount().await?;
    Ok(())
}
