//! Descriptions of links in TOML files.

use std::{io, str::FromStr, time::Duration};

use serde::Deserialize;

use crate::{
    ChannelTrace, ConfigError, IpIdentification, Jitter, JitterSpread, LinkConfig, Loss, Periods, Preset,
    Probability, Rate, RateTrace, ReceiveBufferConfig, UdpChecksum, WiredConfig, parse_duration,
};

const MILLISECOND: Duration = Duration::from_millis(1);

impl LinkConfig {
    /// Reads a link from TOML. Whatever the file leaves out is as in its `preset`, or as in [`LinkConfig::default`];
    /// but a link without a preset that has a rate of its own has no wire behind it unless `wired` describes one.
    ///
    /// `read` fetches the files that `channel.trace` and `rate_trace` name. Rates are in bit/s with `k`, `M`, `G`, durations
    /// have a unit, `channel.good` and `channel.bad` may be bare milliseconds.
    ///
    /// ```
    /// let text = r#"
    ///     preset = "paper-1997"
    ///     delay = "2ms"
    ///     [channel]
    ///     bad = 80
    ///     distribution = "exponential"
    ///     [arq]
    ///     kind = "stop-and-wait"
    ///     retry_limit = 7
    /// "#;
    /// let link = linkemu::LinkConfig::from_toml(text, |name| std::fs::read_to_string(name))?;
    /// assert_eq!(link.arq.retry_limit, Some(7));
    /// # Ok::<(), linkemu::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// [`ConfigError`] with the place in the file, the field and its bound, or the line of a trace.
    pub fn from_toml(text: &str, read: impl Fn(&str) -> io::Result<String>) -> Result<Self, ConfigError> {
        let raw: RawLink = toml::from_str(text)
            .map_err(|error| ConfigError::File { message: error.to_string().trim_end().to_owned() })?;
        let config = raw.checked(&read)?;
        config.validate()?;
        Ok(config)
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawLink {
    preset: Option<String>,
    rate: Option<String>,
    uplink_rate: Option<String>,
    rate_trace: Option<String>,
    bits_per_byte: Option<u32>,
    duplex: Option<String>,
    delay: Option<String>,
    jitter: RawJitter,
    mtu_bytes: Option<u32>,
    link_header_bytes: Option<u32>,
    header_compression: Option<bool>,
    start: Option<String>,
    wired: RawWired,
    channel: RawChannel,
    arq: RawArq,
    queue: RawQueue,
    receive_buffer: Option<RawReceiveBuffer>,
    reassembly: RawReassembly,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawJitter {
    uniform: Option<String>,
    exponential: Option<String>,
    overtaking: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawWired {
    rate: Option<String>,
    delay: Option<String>,
    queue_bytes: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawChannel {
    good: Option<Time>,
    bad: Option<Time>,
    loss: Option<String>,
    distribution: Option<String>,
    trace: Option<String>,
    granularity: Option<String>,
    phase: Option<String>,
    scope: Option<String>,
    good_frame_loss: Option<String>,
    bad_frame_loss: Option<String>,
    good_bit_errors: Option<f64>,
    bad_bit_errors: Option<f64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Millis(f64),
    Text(String),
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawArq {
    kind: Option<String>,
    ack: Option<String>,
    block_ack: Option<String>,
    rts_cts: Option<String>,
    retry: Option<String>,
    retry_limit: Option<u32>,
    probe: Option<String>,
    block_frames: Option<u32>,
    window_frames: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawQueue {
    packets: Option<u32>,
    bytes: Option<u64>,
    scheduler: Option<String>,
    bad_mark: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawReceiveBuffer {
    packets: Option<u32>,
    service: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RawReassembly {
    /// Distinct IP identifications before they wrap; left out, they never do.
    identifications: Option<u32>,
    checksum: Option<String>,
    timeout: Option<String>,
    memory_bytes: Option<u64>,
}

type Read<'a> = &'a dyn Fn(&str) -> io::Result<String>;

impl RawLink {
    fn checked(self, read: Read<'_>) -> Result<LinkConfig, ConfigError> {
        let mut link = match &self.preset {
            Some(name) => Preset::named(name)?.config(),
            None => LinkConfig::default(),
        };
        if self.preset.is_none() && (self.rate.is_some() || self.rate_trace.is_some()) {
            link.wired = WiredConfig::unlimited();
        }
        match (&self.rate, &self.rate_trace) {
            (Some(_), Some(name)) => {
                return Err(ConfigError::malformed("rate_trace", name, "either rate or rate_trace"));
            }
            (Some(rate), None) => link.rate = rate.parse()?,
            (None, Some(name)) => {
                link.rate = Rate::Trace(RateTrace::parse(&load("rate_trace", name, read)?)?)
            }
            (None, None) => {}
        }
        if let Some(rate) = &self.uplink_rate {
            link.uplink_rate = Some(rate.parse()?);
        }
        set(&mut link.bits_per_byte, self.bits_per_byte);
        parse(&mut link.duplex, self.duplex)?;
        duration(&mut link.delay, "delay", self.delay)?;
        self.jitter.apply(&mut link.jitter)?;
        set(&mut link.mtu_bytes, self.mtu_bytes);
        set(&mut link.link_header_bytes, self.link_header_bytes);
        set(&mut link.header_compression, self.header_compression);
        parse(&mut link.start, self.start)?;
        parse(&mut link.wired.rate, self.wired.rate)?;
        duration(&mut link.wired.delay, "wired.delay", self.wired.delay)?;
        set(&mut link.wired.queue_bytes, self.wired.queue_bytes);
        self.channel.apply(&mut link, read)?;
        self.arq.apply(&mut link)?;
        parse(&mut link.queue.scheduler, self.queue.scheduler)?;
        duration(&mut link.queue.bad_mark, "queue.bad_mark", self.queue.bad_mark)?;
        link.queue.packets = self.queue.packets.or(link.queue.packets);
        link.queue.bytes = self.queue.bytes.or(link.queue.bytes);
        if let Some(raw) = self.receive_buffer {
            let mut buffer = link.receive_buffer.unwrap_or_else(ReceiveBufferConfig::default);
            set(&mut buffer.packets, raw.packets);
            duration(&mut buffer.service, "receive_buffer.service", raw.service)?;
            link.receive_buffer = Some(buffer);
        }
        self.reassembly.apply(&mut link)?;
        Ok(link)
    }
}

impl RawJitter {
    fn apply(self, jitter: &mut Jitter) -> Result<(), ConfigError> {
        match (self.uniform, self.exponential) {
            (Some(text), Some(_)) => {
                return Err(ConfigError::malformed("jitter", &text, "either uniform or exponential"));
            }
            (Some(text), None) => {
                jitter.spread = JitterSpread::Uniform(parse_duration("jitter.uniform", &text, None)?)
            }
            (None, Some(text)) => {
                jitter.spread = JitterSpread::Exponential(parse_duration("jitter.exponential", &text, None)?);
            }
            (None, None) => {}
        }
        jitter.overtaking |= self.overtaking;
        Ok(())
    }
}

impl RawChannel {
    fn apply(self, link: &mut LinkConfig, read: Read<'_>) -> Result<(), ConfigError> {
        let channel = &mut link.channel;
        if let Some(name) = &self.trace {
            channel.periods = Periods::Trace(ChannelTrace::parse(&load("channel.trace", name, read)?)?);
        }
        if let Some(text) = self.distribution {
            channel.set_shape(text.parse()?);
        }
        if let Some(time) = self.good {
            channel.set_good_mean(time.read("channel.good")?);
        }
        if let Some(time) = self.bad {
            channel.set_bad_mean(time.read("channel.bad")?);
        }
        if let Some(text) = self.loss {
            channel.set_loss(probability("channel.loss", &text)?)?;
        }
        if let Some(text) = self.granularity {
            channel.granularity = Some(parse_duration("channel.granularity", &text, None)?);
        }
        parse(&mut channel.phase, self.phase)?;
        parse(&mut channel.scope, self.scope)?;
        for (loss, frame, bits) in [
            (
                &mut channel.good_loss,
                ("channel.good_frame_loss", self.good_frame_loss),
                ("channel.good_bit_errors", self.good_bit_errors),
            ),
            (
                &mut channel.bad_loss,
                ("channel.bad_frame_loss", self.bad_frame_loss),
                ("channel.bad_bit_errors", self.bad_bit_errors),
            ),
        ] {
            *loss = match (frame, bits) {
                ((_, Some(text)), (field, Some(_))) => {
                    return Err(ConfigError::malformed(field, &text, "either a frame loss or bit errors"));
                }
                ((field, Some(text)), _) => Loss::Frame(probability(field, &text)?),
                (_, (field, Some(rate))) => {
                    Loss::Bits(Probability::new(rate).map_err(|error| error.of(field))?)
                }
                _ => continue,
            };
        }
        Ok(())
    }
}

impl RawArq {
    fn apply(self, link: &mut LinkConfig) -> Result<(), ConfigError> {
        let arq = &mut link.arq;
        parse(&mut arq.kind, self.kind)?;
        duration(&mut arq.ack, "arq.ack", self.ack)?;
        duration(&mut arq.block_ack, "arq.block_ack", self.block_ack)?;
        duration(&mut arq.rts_cts, "arq.rts_cts", self.rts_cts)?;
        duration(&mut arq.retry, "arq.retry", self.retry)?;
        parse(&mut arq.probe, self.probe)?;
        set(&mut arq.block_frames, self.block_frames);
        arq.retry_limit = self.retry_limit.or(arq.retry_limit);
        arq.window_frames = self.window_frames.or(arq.window_frames);
        Ok(())
    }
}

impl RawReassembly {
    fn apply(self, link: &mut LinkConfig) -> Result<(), ConfigError> {
        let reassembly = &mut link.reassembly;
        let mut checksum = UdpChecksum::Verified;
        parse(&mut checksum, self.checksum)?;
        if let Some(values) = self.identifications {
            reassembly.identification = IpIdentification::Wrapping { values, checksum };
        }
        duration(&mut reassembly.timeout, "reassembly.timeout", self.timeout)?;
        set(&mut reassembly.memory_bytes, self.memory_bytes);
        Ok(())
    }
}

impl Time {
    fn read(self, field: &'static str) -> Result<Duration, ConfigError> {
        match self {
            Self::Millis(millis) => parse_duration(field, &millis.to_string(), Some(MILLISECOND)),
            Self::Text(text) => parse_duration(field, &text, Some(MILLISECOND)),
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn parse<T: FromStr<Err = ConfigError>>(place: &mut T, text: Option<String>) -> Result<(), ConfigError> {
    if let Some(text) = text {
        *place = text.parse()?;
    }
    Ok(())
}

fn probability(field: &'static str, text: &str) -> Result<Probability, ConfigError> {
    text.parse().map_err(|error: ConfigError| error.of(field))
}

fn duration(place: &mut Duration, field: &'static str, text: Option<String>) -> Result<(), ConfigError> {
    if let Some(text) = text {
        *place = parse_duration(field, &text, None)?;
    }
    Ok(())
}

fn load(field: &'static str, name: &str, read: Read<'_>) -> Result<String, ConfigError> {
    read(name).map_err(|error| ConfigError::File { message: format!("{field}: cannot read {name}: {error}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArqKind, BitRate, Duplex, Shape};

    fn parse_text(text: &str) -> Result<LinkConfig, ConfigError> {
        LinkConfig::from_toml(text, |name| match name {
            "fades.csv" => Ok("0,good\n90,bad\n100,end\n".to_owned()),
            "broken.csv" => Ok("0,good\n90,worse\n".to_owned()),
            _ => Err(io::ErrorKind::NotFound.into()),
        })
    }

    #[test]
    fn a_file_overrides_its_preset() {
        let link = parse_text(
            "preset = 'wifi-54'\nrate = '20M'\nduplex = 'full'\njitter = { uniform = '3ms' }\n\
             [channel]\nbad = '10ms'\nloss = '10%'\ndistribution = 'pareto:2'\nbad_frame_loss = '90%'\n\
             [arq]\nkind = 'selective-repeat'\n[queue]\nscheduler = 'channel-state'\n\
             [receive_buffer]\npackets = 3\n[reassembly]\nidentifications = 65536\nchecksum = 'off'\n",
        )
        .expect("a valid file");
        assert_eq!(link.rate.mean(), BitRate::megabits(20));
        assert_eq!((link.duplex, link.arq.kind), (Duplex::Full, ArqKind::SelectiveRepeat));
        let Periods::Drawn { good, bad } = link.channel.periods else { panic!("drawn") };
        assert_eq!(
            (good.shape, bad.mean, good.mean),
            (Shape::Pareto(2.0), MILLISECOND * 10, MILLISECOND * 90)
        );
        assert_eq!(link.queue.packets, Some(450), "from the preset");
        assert_eq!(link.receive_buffer.map(|buffer| buffer.packets), Some(3));
    }

    #[test]
    fn an_empty_file_is_the_default_and_traces_are_read() {
        assert_eq!(parse_text("").expect("a valid file").mtu_bytes, 1500);
        let link = parse_text("[channel]\ntrace = 'fades.csv'\n").expect("a valid file");
        assert!(matches!(link.channel.periods, Periods::Trace(_)));
    }

    #[test]
    fn a_link_with_a_rate_of_its_own_has_no_wire_unless_one_is_named() {
        let wired = |text| parse_text(text).expect("a valid file").wired;
        let ethernet = LinkConfig::default().wired;
        assert_eq!(wired("rate = '50M'"), WiredConfig::unlimited());
        let named = wired("rate = '50M'\nwired = { rate = '20M', delay = '3ms' }");
        assert_eq!((named.rate, named.delay), (BitRate::megabits(20), MILLISECOND * 3));
        assert_eq!(wired(""), ethernet);
        assert_eq!(wired("preset = 'paper-1997'\nrate = '2M'"), ethernet);
    }

    #[test]
    fn errors_name_the_place() {
        let message = |text| parse_text(text).expect_err(text).to_string();
        assert!(message("rait = '1M'\n").contains("line 1"), "{}", message("rait = '1M'\n"));
        assert!(message("mtu_bytes = 10\n").starts_with("mtu_bytes is 10"));
        assert!(message("delay = 'soon'\n").starts_with("delay: cannot read \"soon\""));
        assert!(message("[channel]\ntrace = 'broken.csv'\n").starts_with("trace line 2"));
        assert!(message("[channel]\ntrace = 'none.csv'\n").contains("cannot read none.csv"));
        assert!(message("[arq]\nkind = 'magic'\n").starts_with("arq.kind"));
    }
}
