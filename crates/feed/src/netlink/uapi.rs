//! Constants of the kernel's netlink interface, by the names of its uapi headers.
//!
//! From `linux/netlink.h`, `linux/rtnetlink.h`, `linux/nexthop.h`, `linux/fib_rules.h`,
//! `linux/neighbor.h`, `linux/if_link.h`, `linux/netconf.h`, `linux/if.h`, which never change. No
//! crate has all of them, in particular those of nexthop objects and rules. Numbers are in host
//! byte order, addresses in network byte order.

pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;

// linux/netlink.h
pub(crate) const NLMSG_NOOP: u16 = 1;
pub(crate) const NLMSG_ERROR: u16 = 2;
pub(crate) const NLMSG_DONE: u16 = 3;
pub(crate) const NLMSG_OVERRUN: u16 = 4;
pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;

// linux/sock_diag.h, net/tcp_states.h
pub(crate) const SOCK_DIAG_BY_FAMILY: u16 = 20;
pub(crate) const TCP_ESTABLISHED: u8 = 1;

// linux/rtnetlink.h: messages
pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
pub(crate) const RTM_NEWRULE: u16 = 32;
pub(crate) const RTM_DELRULE: u16 = 33;
pub(crate) const RTM_GETRULE: u16 = 34;
pub(crate) const RTM_NEWNETCONF: u16 = 80;
pub(crate) const RTM_DELNETCONF: u16 = 81;
pub(crate) const RTM_GETNETCONF: u16 = 82;
pub(crate) const RTM_NEWNEXTHOP: u16 = 104;
pub(crate) const RTM_DELNEXTHOP: u16 = 105;
pub(crate) const RTM_GETNEXTHOP: u16 = 106;

// linux/rtnetlink.h: multicast groups, as the bits that bind(2) takes
pub(crate) const GROUP_LINK: u32 = 1 << 0;
pub(crate) const GROUP_NEIGH: u32 = 1 << 2;
pub(crate) const GROUP_IPV4_IFADDR: u32 = 1 << 4;
pub(crate) const GROUP_IPV4_ROUTE: u32 = 1 << 6;
pub(crate) const GROUP_IPV4_RULE: u32 = 1 << 7;
pub(crate) const GROUP_IPV6_IFADDR: u32 = 1 << 8;
pub(crate) const GROUP_IPV6_ROUTE: u32 = 1 << 10;
pub(crate) const GROUP_IPV6_RULE: u32 = 1 << 18;
pub(crate) const GROUP_IPV4_NETCONF: u32 = 1 << 23;
pub(crate) const GROUP_IPV6_NETCONF: u32 = 1 << 24;
pub(crate) const GROUP_NEXTHOP: u32 = 1 << 31;

// linux/rtnetlink.h: routes
pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_PRIORITY: u16 = 6;
pub(crate) const RTA_PREFSRC: u16 = 7;
pub(crate) const RTA_METRICS: u16 = 8;
pub(crate) const RTAX_MTU: u16 = 2;
pub(crate) const RTA_MULTIPATH: u16 = 9;
pub(crate) const RTA_FLOW: u16 = 11;
pub(crate) const RTA_CACHEINFO: u16 = 12;
pub(crate) const RTA_TABLE: u16 = 15;
pub(crate) const RTA_VIA: u16 = 18;
pub(crate) const RTA_ENCAP: u16 = 22;
pub(crate) const RTA_NH_ID: u16 = 30;
pub(crate) const RTM_F_CLONED: u32 = 0x200;
pub(crate) const RTM_F_LOOKUP_TABLE: u32 = 0x1000;
pub(crate) const RTM_F_FIB_MATCH: u32 = 0x2000;
pub(crate) const RTN_UNICAST: u8 = 1;
pub(crate) const RTN_LOCAL: u8 = 2;
pub(crate) const RTN_BROADCAST: u8 = 3;
pub(crate) const RTN_ANYCAST: u8 = 4;
pub(crate) const RTN_MULTICAST: u8 = 5;
pub(crate) const RTN_BLACKHOLE: u8 = 6;
pub(crate) const RTN_UNREACHABLE: u8 = 7;
pub(crate) const RTN_PROHIBIT: u8 = 8;
pub(crate) const RTN_THROW: u8 = 9;
pub(crate) const RTPROT_RA: u8 = 9;
pub(crate) const RT_SCOPE_HOST: u8 = 254;
pub(crate) const RT_TABLE_MAIN: u32 = 254;
pub(crate) const RTNH_F_DEAD: u8 = 1;
pub(crate) const RTNH_F_ONLINK: u8 = 4;
pub(crate) const RTNH_F_LINKDOWN: u8 = 16;

// linux/nexthop.h
pub(crate) const NHA_ID: u16 = 1;
pub(crate) const NHA_GROUP: u16 = 2;
pub(crate) const NHA_GROUP_TYPE: u16 = 3;
pub(crate) const NHA_BLACKHOLE: u16 = 4;
pub(crate) const NHA_OIF: u16 = 5;
pub(crate) const NHA_GATEWAY: u16 = 6;
pub(crate) const NHA_ENCAP: u16 = 8;
pub(crate) const NHA_FDB: u16 = 11;
pub(crate) const NEXTHOP_GRP_TYPE_RES: u16 = 1;

// linux/if_link.h, linux/if.h
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_QDISC: u16 = 6;
pub(crate) const IFLA_MASTER: u16 = 10;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_XDP: u16 = 43;
pub(crate) const IFLA_XDP_ATTACHED: u16 = 2;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const IFLA_INFO_SLAVE_KIND: u16 = 4;
pub(crate) const IFLA_INFO_SLAVE_DATA: u16 = 5;
pub(crate) const IFLA_BOND_MODE: u16 = 1;
pub(crate) const IFLA_BOND_SLAVE_STATE: u16 = 1;
pub(crate) const IFLA_BOND_SLAVE_MII_STATUS: u16 = 2;
pub(crate) const IFLA_VRF_TABLE: u16 = 1;
pub(crate) const IFLA_MACVLAN_MODE: u16 = 1;
pub(crate) const IFLA_VLAN_ID: u16 = 1;
pub(crate) const IFLA_VLAN_EGRESS_QOS: u16 = 3;
pub(crate) const IFLA_VLAN_INGRESS_QOS: u16 = 4;
pub(crate) const IFLA_VLAN_PROTOCOL: u16 = 5;
pub(crate) const IFLA_VLAN_QOS_MAPPING: u16 = 1;
pub(crate) const IFF_UP: u32 = 0x1;
pub(crate) const IFF_LOOPBACK: u32 = 0x8;
pub(crate) const IFF_RUNNING: u32 = 0x40;
pub(crate) const IFF_LOWER_UP: u32 = 0x1_0000;

// linux/if_addr.h
pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_F_SECONDARY: u8 = 1;
pub(crate) const IFA_F_DEPRECATED: u8 = 0x20;
pub(crate) const IFA_F_TENTATIVE: u8 = 0x40;

// linux/neighbor.h
pub(crate) const NDA_DST: u16 = 1;
pub(crate) const NDA_LLADDR: u16 = 2;
pub(crate) const NTF_USE: u8 = 0x1;
pub(crate) const NTF_PROXY: u8 = 0x8;
pub(crate) const NUD_REACHABLE: u16 = 0x02;
pub(crate) const NUD_STALE: u16 = 0x04;
pub(crate) const NUD_DELAY: u16 = 0x08;
pub(crate) const NUD_PROBE: u16 = 0x10;
pub(crate) const NUD_NOARP: u16 = 0x40;
pub(crate) const NUD_PERMANENT: u16 = 0x80;

// linux/netconf.h
pub(crate) const NETCONFA_IFINDEX: u16 = 1;
pub(crate) const NETCONFA_FORWARDING: u16 = 2;
pub(crate) const NETCONFA_RP_FILTER: u16 = 3;
pub(crate) const NETCONFA_IGNORE_ROUTES_WITH_LINKDOWN: u16 = 6;

// linux/fib_rules.h
pub(crate) const FRA_DST: u16 = 1;
pub(crate) const FRA_SRC: u16 = 2;
pub(crate) const FRA_IIFNAME: u16 = 3;
pub(crate) const FRA_GOTO: u16 = 4;
pub(crate) const FRA_PRIORITY: u16 = 6;
pub(crate) const FRA_FWMARK: u16 = 10;
pub(crate) const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
pub(crate) const FRA_TABLE: u16 = 15;
pub(crate) const FRA_FWMASK: u16 = 16;
pub(crate) const FRA_OIFNAME: u16 = 17;
pub(crate) const FRA_PAD: u16 = 18;
pub(crate) const FRA_L3MDEV: u16 = 19;
pub(crate) const FRA_PROTOCOL: u16 = 21;
pub(crate) const FIB_RULE_INVERT: u32 = 0x2;
pub(crate) const FR_ACT_TO_TBL: u8 = 1;
pub(crate) const FR_ACT_GOTO: u8 = 2;
pub(crate) const FR_ACT_NOP: u8 = 3;
pub(crate) const FR_ACT_BLACKHOLE: u8 = 6;
pub(crate) const FR_ACT_UNREACHABLE: u8 = 7;
pub(crate) const FR_ACT_PROHIBIT: u8 = 8;
