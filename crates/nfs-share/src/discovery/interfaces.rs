//! Interfaces on which there may be people nearby.

use std::{collections::BTreeMap, io, net::IpAddr};

use nix::{
    ifaddrs::{InterfaceAddress, getifaddrs},
    net::if_::InterfaceFlags,
};

use super::DiscoveryError;

/// Which network interfaces are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Interfaces {
    /// All that are up, have multicast, and lead to a network that is shared with others: not loopback, not a point-to-point link, and none
    /// of a VPN, a container or a virtual machine.
    #[default]
    Nearby,
    /// These, whatever they are called.
    Named(Vec<String>),
}

/// How names begin of interfaces that lead to nobody nearby.
const FAR: &[&str] = &[
    // Containers and virtual machines.
    "br-",
    "cali",
    "cbr",
    "cilium",
    "cni",
    "docker",
    "flannel",
    "incusbr",
    "kube",
    "lxc",
    "lxd",
    "podman",
    "vboxnet",
    "veth",
    "virbr",
    "vmnet",
    "vnet",
    // VPNs and tunnels.
    "gif",
    "gpd",
    "gre",
    "ham",
    "ip6gre",
    "ip6tnl",
    "ipsec",
    "mullvad",
    "nebula",
    "nordlynx",
    "ppp",
    "proton",
    "sit",
    "stf",
    "tailscale",
    "tap",
    "tinc",
    "tun",
    "utun",
    "vti",
    "wg",
    "xfrm",
    "zt",
    // Mobile networks: everybody in them is a stranger.
    "rmnet",
    "wwan",
    "wwp",
    "wws",
    // Links of one maker's devices, and what carries nothing.
    "anpi",
    "awdl",
    "dummy",
    "ifb",
    "llw",
];

/// An interface as the system describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    name: String,
    flags: InterfaceFlags,
    addresses: Vec<IpAddr>,
}

impl Seen {
    fn has(&self, flags: InterfaceFlags) -> bool {
        self.flags.contains(flags)
    }

    fn is_nearby(&self) -> bool {
        self.has(InterfaceFlags::IFF_MULTICAST) && self.is_of_others()
    }

    /// Whether people nearby may be behind it, who are reached by an address at least.
    fn is_of_others(&self) -> bool {
        self.has(InterfaceFlags::IFF_UP)
            && !self.flags.intersects(InterfaceFlags::IFF_LOOPBACK | InterfaceFlags::IFF_POINTOPOINT)
            && !is_far(&self.name)
    }
}

impl Interfaces {
    /// Returns the names of those that are used now, as far as they have an address.
    ///
    /// # Errors
    /// Where one is named that does not exist or has no multicast, or the system tells none.
    pub fn names(&self) -> Result<Vec<String>, DiscoveryError> {
        self.usable(|_| true)
    }

    /// Returns the addresses of this machine on them, for those who have to type one: also where there is no multicast.
    ///
    /// # Errors
    /// As [`names`](Self::names).
    pub fn addresses(&self) -> Result<Vec<IpAddr>, DiscoveryError> {
        let seen = seen().map_err(DiscoveryError::Interfaces)?;
        let used = match self {
            Self::Nearby => seen.iter().filter(|it| it.is_of_others()).collect(),
            Self::Named(_) => self.of(&seen)?,
        };
        Ok(used.into_iter().flat_map(|it| it.addresses.clone()).collect())
    }

    /// As [`names`](Self::names), where only interfaces count that have an address which `takes` accepts.
    pub(super) fn usable(&self, takes: impl Fn(IpAddr) -> bool) -> Result<Vec<String>, DiscoveryError> {
        let seen = seen().map_err(DiscoveryError::Interfaces)?;
        let chosen = self.of(&seen)?;
        let has_address = |it: &&Seen| it.addresses.iter().any(|address| takes(*address));
        Ok(chosen.into_iter().filter(has_address).map(|it| it.name.clone()).collect())
    }

    fn of<'a>(&self, seen: &'a [Seen]) -> Result<Vec<&'a Seen>, DiscoveryError> {
        let Self::Named(names) = self else { return Ok(seen.iter().filter(|it| it.is_nearby()).collect()) };
        let mut chosen = Vec::new();
        for name in names {
            let Some(it) = seen.iter().find(|it| it.name == *name) else {
                let known = seen.iter().map(|it| it.name.clone()).collect();
                return Err(DiscoveryError::Unknown { name: name.clone(), known });
            };
            if it.has(InterfaceFlags::IFF_POINTOPOINT) {
                return Err(DiscoveryError::PointToPoint(name.clone()));
            }
            if it.has(InterfaceFlags::IFF_UP) {
                chosen.push(it);
            }
        }
        Ok(chosen)
    }

    /// Whether an interface of this name is used, which the system is asked only if its name does not tell.
    pub(super) fn takes(&self, name: &str) -> bool {
        match self {
            Self::Named(names) => names.iter().any(|it| it == name),
            Self::Nearby => {
                let is_nearby = |seen: Vec<Seen>| seen.iter().any(|it| it.name == name && it.is_nearby());
                !is_far(name) && seen().is_ok_and(is_nearby)
            }
        }
    }
}

fn is_far(name: &str) -> bool {
    FAR.iter().any(|begin| name.starts_with(begin))
}

/// Asks the system.
fn seen() -> io::Result<Vec<Seen>> {
    let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
    for InterfaceAddress { interface_name: name, flags, address, .. } in getifaddrs()? {
        let new = || Seen { name: name.clone(), flags, addresses: Vec::new() };
        let it = seen.entry(name.clone()).or_insert_with(new);
        if let Some(address) = address {
            let v4 = address.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
            it.addresses.extend(v4.or_else(|| Some(address.as_sockaddr_in6()?.ip().into())));
        }
    }
    Ok(seen.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETHERNET: InterfaceFlags = InterfaceFlags::IFF_UP
        .union(InterfaceFlags::IFF_BROADCAST)
        .union(InterfaceFlags::IFF_RUNNING)
        .union(InterfaceFlags::IFF_MULTICAST);
    const TUNNEL: InterfaceFlags = InterfaceFlags::IFF_UP
        .union(InterfaceFlags::IFF_POINTOPOINT)
        .union(InterfaceFlags::IFF_MULTICAST)
        .union(InterfaceFlags::IFF_NOARP);

    fn seen_as(name: &str, flags: InterfaceFlags) -> Seen {
        Seen { name: name.to_owned(), flags, addresses: vec![[10, 0, 0, 1].into()] }
    }

    #[test]
    fn people_nearby_are_behind_some_interfaces_only() {
        let without = |flags| ETHERNET.difference(flags);
        for (name, flags, is_nearby) in [
            ("eth0", ETHERNET, true),
            ("enp3s0", ETHERNET, true),
            ("wlan0", ETHERNET, true),
            ("wlp2s0", ETHERNET, true),
            ("usb0", ETHERNET, true),
            ("bnep0", ETHERNET, true),
            ("bond0", ETHERNET, true),
            // A bridge of this machine's own network, not one that Docker has made.
            ("br0", ETHERNET, true),
            ("eth0.10", ETHERNET, true),
            ("en0", ETHERNET, true),
            // How macOS shares its network.
            ("bridge100", ETHERNET, true),
            ("eth0", without(InterfaceFlags::IFF_UP), false),
            ("eth0", without(InterfaceFlags::IFF_MULTICAST), false),
            ("lo", InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOOPBACK, false),
            ("lo", ETHERNET | InterfaceFlags::IFF_LOOPBACK, false),
            ("mobile0", TUNNEL, false),
            ("docker0", ETHERNET, false),
            ("br-3f1c2d4e5a6b", ETHERNET, false),
            ("veth1a2b3c4", ETHERNET, false),
            ("virbr0", ETHERNET, false),
            ("vnet3", ETHERNET, false),
            ("lxcbr0", ETHERNET, false),
            ("podman1", ETHERNET, false),
            ("cni0", ETHERNET, false),
            ("cali0123456789a", ETHERNET, false),
            ("vmnet8", ETHERNET, false),
            ("tun0", TUNNEL, false),
            ("tap0", ETHERNET, false),
            ("wg0", TUNNEL, false),
            ("wg-home", ETHERNET, false),
            ("ztabcdef12", ETHERNET, false),
            ("tailscale0", TUNNEL, false),
            ("utun4", TUNNEL, false),
            ("ppp0", TUNNEL, false),
            ("wwan0", ETHERNET, false),
            ("awdl0", ETHERNET, false),
        ] {
            assert_eq!(seen_as(name, flags).is_nearby(), is_nearby, "{name} {flags:?}");
        }
    }

    #[test]
    fn a_name_outweighs_the_table_and_must_exist() {
        let down = ETHERNET.difference(InterfaceFlags::IFF_UP);
        let seen = [
            seen_as("docker0", ETHERNET),
            seen_as("eth0", ETHERNET),
            seen_as("eth1", down),
            seen_as("lo", InterfaceFlags::IFF_UP | InterfaceFlags::IFF_LOOPBACK),
            seen_as("tun0", TUNNEL),
        ];
        let names = |interfaces: &Interfaces| -> Result<Vec<String>, String> {
            let chosen = interfaces.of(&seen).map_err(|error| error.to_string())?;
            Ok(chosen.iter().map(|it| it.name.clone()).collect())
        };
        let named = |names: &[&str]| Interfaces::Named(names.iter().map(|name| (*name).to_owned()).collect());
        let all = |names: &[&str]| Ok(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&Interfaces::Nearby), all(&["eth0"]));
        assert_eq!(names(&named(&["docker0", "lo"])), all(&["docker0", "lo"]));
        assert_eq!(names(&named(&["eth1"])), all(&[]));
        let unknown = "there is no network interface wlan9 (there are: docker0, eth0, eth1, lo, tun0)";
        assert_eq!(names(&named(&["eth0", "wlan9"])), Err(unknown.to_owned()));
        assert_eq!(
            names(&named(&["tun0"])),
            Err("tun0 is a point-to-point link, which has no multicast".to_owned())
        );
    }

    #[test]
    fn the_system_tells_its_loopback() {
        let lo = seen().unwrap().into_iter().find(|it| it.has(InterfaceFlags::IFF_LOOPBACK)).unwrap();
        assert!(!lo.is_nearby() && !Interfaces::Nearby.takes(&lo.name));
        assert!(Interfaces::Named(vec![lo.name.clone()]).takes(&lo.name));
    }
}
