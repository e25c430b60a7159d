//! What the guest boots: Debian's kernel, and a root file system of unpacked packages.
//!
//! Nothing is installed on this machine. Packages are kept below the build directory.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fs,
    hash::{Hash as _, Hasher as _},
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};

/// Programs of the guest and the libraries that they load, as packages of Debian 12.
const PACKAGES: [&str; 26] = [
    "busybox-static",
    "nfs-kernel-server",
    "rpcbind",
    "libc6",
    "libblkid1",
    "libcap2",
    "libcom-err2",
    "libevent-core-2.1-7",
    "libgcc-s1",
    "libgcrypt20",
    "libgpg-error0",
    "libgssapi-krb5-2",
    "libk5crypto3",
    "libkeyutils1",
    "libkrb5-3",
    "libkrb5support0",
    "liblz4-1",
    "liblzma5",
    "libnsl2",
    "libsystemd0",
    "libtirpc-common",
    "libtirpc3",
    "libuuid1",
    "libwrap0",
    "libzstd1",
    "zlib1g",
];

/// Depends on the kernel of the day; the one for virtual machines is a third of the other's size.
const KERNEL: &str = "linux-image-cloud-amd64";

/// Modules that the guest needs, as a server and as a client; what they depend on is found in them.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_net", "virtio_blk", "nfsd", "nfsv3"];

const INIT: &str = include_str!("init.sh");

/// Files below `/etc` without which the programs do not start.
const ETC: [(&str, &str); 6] = [
    ("passwd", "root:x:0:0::/:/bin/sh\n_rpc:x:106:65534::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n"),
    ("group", "root:x:0:\nnogroup:x:65534:\n"),
    ("nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\nservices: files\nrpc: files\n"),
    ("hosts", "127.0.0.1 localhost\n"),
    ("services", "sunrpc 111/tcp\nsunrpc 111/udp\nnfs 2049/tcp\nnfs 2049/udp\n"),
    ("rpc", "portmapper 100000\nnfs 100003\nmountd 100005\n"),
];

/// Returns the directory for what later runs can use.
pub(crate) fn cache() -> Result<PathBuf> {
    let cache = crate::build_directory().join("private-servers/knfsd");
    fs::create_dir_all(&cache)?;
    Ok(cache)
}

/// A kernel and its first file system.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// The kernel.
    pub(crate) kernel: PathBuf,
    /// The archive that it unpacks as its root.
    pub(crate) root: PathBuf,
}

impl Image {
    /// Takes the image from the cache, or makes it; nobody else may be doing so.
    pub(crate) fn get() -> Result<Self> {
        let mut hasher = DefaultHasher::new();
        (PACKAGES, KERNEL, MODULES, INIT, ETC).hash(&mut hasher);
        let cache = cache()?;
        let done = cache.join(format!("{:016x}", hasher.finish()));
        if !done.exists() {
            let making = cache.join("making");
            if making.exists() {
                fs::remove_dir_all(&making)?;
            }
            fs::create_dir(&making)?;
            make(&cache, &making).context("making the Linux guest")?;
            fs::rename(&making, &done)?;
        }
        Ok(Self { kernel: done.join("kernel"), root: done.join("root.cpio") })
    }
}

fn make(cache: &Path, image: &Path) -> Result<()> {
    let packages = cache.join("packages");
    fs::create_dir_all(&packages)?;
    let (root, kernel) = (image.join("root"), image.join("unpacked-kernel"));
    for directory in ["proc", "sys", "dev", "run", "etc", "mnt", "modules", "var/lib/nfs/v4recovery", "bin"] {
        fs::create_dir_all(root.join(directory))?;
    }
    unpack(&download(&packages, &kernel_package()?)?, &kernel)?;
    for package in PACKAGES {
        unpack(&download(&packages, package)?, &root)?;
    }
    for unused in ["usr/share", "usr/lib/x86_64-linux-gnu/gconv"] {
        fs::remove_dir_all(root.join(unused))?;
    }
    symlink("/run", root.join("var/run"))?;
    for (name, text) in ETC {
        fs::write(root.join("etc").join(name), text)?;
    }
    fs::write(root.join("init"), INIT)?;
    fs::set_permissions(root.join("init"), fs::Permissions::from_mode(0o755))?;
    copy_modules(&kernel, &root.join("modules"))?;
    let boot = fs::read_dir(kernel.join("boot"))?.flatten().map(|entry| entry.path());
    let vmlinuz = boot
        .into_iter()
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz")));
    fs::copy(vmlinuz.context("the kernel's package has no vmlinuz")?, image.join("kernel"))?;
    run("sh", &["-c", "find . | cpio --quiet -o -H newc -R 0:0 >../root.cpio"], &root)?;
    fs::remove_dir_all(&root)?;
    fs::remove_dir_all(&kernel)?;
    Ok(())
}

/// Returns the name of the package with today's kernel.
fn kernel_package() -> Result<String> {
    let text = run("apt-cache", &["depends", KERNEL], Path::new("/"))?;
    let name = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    Ok(name.with_context(|| format!("apt knows no {KERNEL}: run apt-get update"))?.to_owned())
}

/// Returns the file of a package, which is downloaded once.
fn download(packages: &Path, name: &str) -> Result<PathBuf> {
    let own = packages.join(name);
    if !own.exists() {
        let part = packages.join(format!("{name}.part"));
        if part.exists() {
            fs::remove_dir_all(&part)?;
        }
        fs::create_dir(&part)?;
        run("apt-get", &["-q", "-o", "APT::Sandbox::User=root", "download", name], &part)?;
        fs::rename(&part, &own)?;
    }
    let entry = fs::read_dir(&own)?.next().with_context(|| format!("{} is empty", own.display()))??;
    Ok(entry.path())
}

fn unpack(package: &Path, directory: &Path) -> Result<()> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    run("dpkg-deb", &["-x", &path(package), &path(directory)], Path::new("/")).map(drop)
}

/// Copies modules and what they depend on, and writes the order in which they can be inserted.
fn copy_modules(kernel: &Path, to: &Path) -> Result<()> {
    let mut files = BTreeMap::new();
    let mut directories = vec![kernel.join("lib/modules")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else if let Some(name) = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".ko")) {
                files.insert(name.replace('-', "_"), path);
            }
        }
    }
    let mut order = Vec::new();
    for module in MODULES {
        insert(module, &files, &mut order)?;
    }
    for module in &order {
        fs::copy(&files[module], to.join(module))?;
    }
    fs::write(to.join("order"), order.join("\n") + "\n")?;
    Ok(())
}

/// Appends a module behind all that it depends on.
fn insert(module: &str, files: &BTreeMap<String, PathBuf>, order: &mut Vec<String>) -> Result<()> {
    let module = module.replace('-', "_");
    if order.contains(&module) {
        return Ok(());
    }
    let Some(path) = files.get(&module) else { bail!("the kernel has no module {module}") };
    let data = fs::read(path)?;
    const DEPENDS: &[u8] = b"\0depends=";
    if let Some(start) = data.windows(DEPENDS.len()).position(|window| window == DEPENDS) {
        let list = data[start + DEPENDS.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
        for name in String::from_utf8_lossy(list).split(',').filter(|name| !name.is_empty()) {
            insert(name, files, order)?;
        }
    }
    order.push(module);
    Ok(())
}

/// Runs a program of this machine and returns what it printed.
fn run(program: &str, arguments: &[&str], directory: &Path) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("running {program}, which must be installed"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {said}", arguments.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
