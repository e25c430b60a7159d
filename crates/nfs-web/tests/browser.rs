//! A real browser at a front: Chromium, led by its driver (W3C WebDriver).

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use nfs_web::{Front, Secret};
use nfs_wireless_server::{Access, Directory, DirectoryConfig};
use serde_json::{Value, json};

const MISSING: &str = "apt-get install chromium chromium-driver";

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A window of a browser with a profile of its own.
struct Browser {
    driver: Child,
    address: String,
    session: String,
    downloads: tempfile::TempDir,
}

impl Browser {
    fn start(width: u32, height: u32, script: Script) -> Self {
        let mut driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn().expect(MISSING);
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines
            .find_map(|line| {
                line.split_once("started successfully on port ").map(|(_, port)| port.to_owned())
            })
            .expect("the driver says its port");
        thread::spawn(move || lines.for_each(drop));
        let downloads = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", port.trim_end_matches('.'));
        let mut browser = Self { driver, address, session: String::new(), downloads };
        let javascript = if script == Script::Runs { 1 } else { 2 };
        let options = json!({
            "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                format!("--window-size={width},{height}")],
            "prefs": {"profile.managed_default_content_settings.javascript": javascript},
        });
        let wanted = json!({"capabilities": {"alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options}}});
        let made = browser.call("POST", "", &wanted);
        browser.session = format!("/{}", made["sessionId"].as_str().expect("a session"));
        let command = |name: &str, parameters: Value| {
            browser.call("POST", "/chromium/send_command", &json!({"cmd": name, "params": parameters}));
        };
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        command("Emulation.setDeviceMetricsOverride", size);
        let place = json!({"behavior": "allow", "downloadPath": browser.downloads.path()});
        command("Browser.setDownloadBehavior", place);
        browser
    }

    /// Calls the driver, below the session.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("/session{}{path}", self.session);
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut reply = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(reply.read_line(&mut line).unwrap(), 0, "the driver says nothing");
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reply.read_exact(&mut body).unwrap();
        let reply: Value = serde_json::from_slice(&body).unwrap();
        assert!(reply["value"]["error"].is_null(), "{path}: {}", reply["value"]["message"]);
        reply["value"].clone()
    }

    fn go(&self, address: &str) {
        self.call("POST", "/url", &json!({"url": address}));
    }

    fn run(&self, script: &str) -> Value {
        self.call("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    fn address(&self) -> String {
        self.call("GET", "/url", &Value::Null).as_str().unwrap().to_owned()
    }

    fn text(&self) -> String {
        self.run("return document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Keeps what the window shows, where `NFSW_SCREENSHOTS` says, for people to look at.
    fn picture(&self, name: &str) {
        let Some(place) = std::env::var_os("NFSW_SCREENSHOTS") else { return };
        let encoded = self.call("GET", "/screenshot", &Value::Null);
        let file = fs::File::create(Path::new(&place).join(format!("{name}.png"))).unwrap();
        let mut decoder =
            Command::new("base64").arg("-d").stdin(Stdio::piped()).stdout(file).spawn().unwrap();
        decoder.stdin.take().unwrap().write_all(encoded.as_str().unwrap().as_bytes()).unwrap();
        assert!(decoder.wait().unwrap().success());
    }

    /// Waits for a download to be complete.
    #[track_caller]
    fn downloaded(&self, name: &str) -> Vec<u8> {
        let path = self.downloads.path().join(name);
        until(|| path.exists());
        fs::read(path).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() && !thread::panicking() {
            self.call("DELETE", "", &Value::Null);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Whether pages may run scripts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Runs,
    IsOff,
}

#[track_caller]
fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within a minute");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A picture that every browser shows (BMP), 2 by 2, of one colour.
fn picture() -> Vec<u8> {
    let mut bytes = b"BM".to_vec();
    for number in [70_u32, 0, 54, 40, 2, 2, 1 | 24 << 16, 0, 16, 2835, 2835, 0, 0] {
        bytes.extend(number.to_le_bytes());
    }
    (0..2).for_each(|_| bytes.extend([200, 100, 30, 200, 100, 30, 0, 0]));
    bytes
}

struct Shared {
    runtime: tokio::runtime::Runtime,
    front: Option<Front>,
    secret: Secret,
    address: SocketAddr,
    until: Arc<Mutex<Instant>>,
    _folder: tempfile::TempDir,
}

impl Shared {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let front = runtime.block_on(Front::bind("127.0.0.1:0".parse().unwrap(), "Photos")).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        put("Trip to the sea/beach.txt", b"sand");
        put("notes.txt", b"only text");
        put("picture.bmp", &picture());
        put("evil.html", b"<script>document.title = 'script'; alert(1)</script>");
        put("<img src=x onerror=\"document.title='script'\">.txt", b"");
        put(
            "a very long name of a file that somebody has made from the whole title of a book - with its subtitle.epub",
            b"x",
        );
        put("big.bin", &vec![7; 3_000_000]);
        let mut config = DirectoryConfig::default();
        config.access = Access::ReadOnly;
        let (secret, address) = (Secret::draw(), front.local_addr());
        let until = Arc::new(Mutex::new(Instant::now() + Duration::from_secs(3600)));
        let term = Arc::clone(&until);
        front.admit(&secret, Directory::open(folder.path(), config).unwrap(), move || {
            Some(*term.lock().unwrap())
        });
        Self { runtime, front: Some(front), secret, address, until, _folder: folder }
    }

    fn whole_address(&self) -> String {
        format!("http://{}/#{}", self.address, self.secret)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.runtime.block_on(self.front.take().unwrap().end());
    }
}

#[test]
#[ignore = "takes Chromium and its driver, which ./ci.sh long installs"]
fn a_browser_sees_the_files_and_only_until_the_end() {
    let shared = Shared::new();
    let browser = Browser::start(390, 844, Script::Runs);
    browser.go(&shared.whole_address());
    until(|| browser.address().ends_with("/files/"));
    // The secret is nowhere that somebody behind one sees.
    let seen = browser.run("return document.documentElement.outerHTML + location.href + document.cookie");
    assert!(!seen.as_str().unwrap().contains(&shared.secret.to_string()));
    let text = browser.text();
    for shown in
        ["Photos", "Trip to the sea/", "notes.txt", "3.0 MB", "1 folder, 6 files", "<img src=x onerror="]
    {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert!(!text.contains("UTC"), "times are those of the browser: {text}");
    assert_eq!(browser.run("return document.title"), "Photos");
    let wide = browser.run("return document.documentElement.scrollWidth");
    assert_eq!(wide, 390, "the page is as wide as the phone");
    until(|| {
        browser.run("return [...document.images].every(it => it.complete && it.naturalWidth === 2)") == true
    });
    browser.picture("phone");
    // Into a folder, by a touch, and back.
    browser.run("document.querySelector('.folder').click()");
    until(|| browser.text().contains("beach.txt"));
    assert_eq!(browser.run("return document.title"), "Trip to the sea");
    browser.picture("phone-folder");
    browser.run("document.querySelector('.up a').click()");
    until(|| browser.text().contains("notes.txt"));
    // Downloads: a file with a script in it, and everything.
    browser
        .run("[...document.querySelectorAll('a.entry')].find(it => it.textContent.includes('evil')).click()");
    assert!(browser.downloaded("evil.html").starts_with(b"<script>"));
    assert_eq!(browser.run("return document.title"), "Photos");
    browser.run("document.querySelector('a.all').click()");
    let archive = browser.downloaded("Photos.zip");
    assert!(archive.starts_with(b"PK") && archive.len() > 1000);
    let bytes = browser.run(
        "const it = new XMLHttpRequest(); it.open('GET', '/files/notes.txt', false); \
         try { it.send() } catch { return 'refused' } return it.responseText",
    );
    assert_eq!(bytes, "refused", "pages load nothing by scripts");
    *shared.until.lock().unwrap() = Instant::now();
    browser.go(&format!("http://{}/files/", shared.address));
    assert!(browser.text().contains("the time is over"), "{}", browser.text());
    browser.picture("phone-over");
}

#[test]
#[ignore = "takes Chromium and its driver, which ./ci.sh long installs"]
fn without_scripts_the_secret_is_typed() {
    let shared = Shared::new();
    let browser = Browser::start(1280, 800, Script::IsOff);
    browser.go(&format!("http://{}/", shared.address));
    let type_in = |text: &str| {
        let find = |what: &str| {
            let found = browser.call("POST", "/element", &json!({"using": "css selector", "value": what}));
            found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
        };
        browser.call("POST", &format!("/element/{}/value", find("#secret")), &json!({"text": text}));
        browser.call("POST", &format!("/element/{}/click", find("button")), &json!({}));
    };
    browser.picture("desktop-entrance");
    type_in(&Secret::draw().to_string());
    until(|| browser.text().contains("not the right secret"));
    type_in(&shared.secret.to_string());
    until(|| browser.address().ends_with("/files/"));
    assert!(browser.text().contains("notes.txt") && browser.text().contains("UTC"));
    browser.picture("desktop");
}
