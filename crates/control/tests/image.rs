//! Tests of images: one plane is saved, another starts from the image, and the workers' readers
//! show the result.

mod rig;

use datapath::Verdict;
use feed::netlink::{Follower, Neighbor, Target};
use fib::Choice;
use fib::image::{BadImage, Image, Writer};
use fingerpost_control::plane::{AdoptError, InterfaceNames};
use rig::{MAIN, OTHER, Rig, info, ip, mac, to};

/// Names of interfaces whose indexes have this offset: a restart may renumber them.
struct Renumbered(u32);

impl InterfaceNames for Renumbered {
    fn name(&self, index: u32) -> Option<String> {
        Some(format!("eth{}", index.checked_sub(self.0)?))
    }
    fn index(&self, name: &str) -> Option<u32> {
        let number: u32 = name.strip_prefix("eth")?.parse().ok()?;
        (number < 9).then_some(number + self.0)
    }
}

/// Makes a rig with the kernel's state except for routes.
fn with_neighbors(by: u32) -> Rig {
    let mut rig = Rig::new(by, false);
    for (interface, address, last) in
        [(1, "192.0.2.1", 1), (2, "192.0.2.2", 2), (2, "fe80::2", 3), (1, "192.0.2.7", 7)]
    {
        rig.neighbor(interface, address, Some(last));
    }
    rig
}

fn save(rig: &Rig) -> Vec<u8> {
    rig.plane.save(&Renumbered(rig.by)).unwrap().unwrap()
}

fn adopt(rig: &mut Rig, image: &[u8]) -> Result<(), AdoptError> {
    let image = Image::read(image)?;
    rig.plane.adopt(&image, &[ip("192.0.2.254")], &Renumbered(rig.by))
}

/// Adds the routes before the restart, and removes one, which leaves hops without a route.
fn routes(rig: &mut Rig) {
    rig.route(MAIN, "9.0.0.0/8", Some(&to(&[(1, Some("192.0.2.200"), 1)])));
    rig.route(MAIN, "10.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
    rig.route(MAIN, "11.0.0.0/8", Some(&to(&[(2, Some("192.0.2.2"), 1)])));
    rig.route(MAIN, "12.0.0.0/8", Some(&info(Target::Blackhole)));
    rig.route(MAIN, "13.0.0.0/8", Some(&info(Target::Unreachable)));
    let two = to(&[(1, Some("192.0.2.1"), 1), (2, Some("192.0.2.2"), 3)]);
    rig.route(MAIN, "14.0.0.0/8", Some(&two));
    rig.route(MAIN, "192.0.2.0/24", Some(&to(&[(1, None, 1)])));
    rig.route(MAIN, "2001:db8::/32", Some(&to(&[(2, Some("fe80::2"), 1)])));
    rig.route(OTHER, "10.0.0.0/8", Some(&to(&[(2, Some("192.0.2.2"), 1)])));
    rig.commit();
    rig.route(MAIN, "9.0.0.0/8", None);
    rig.commit();
    rig.commit();
}

/// Checks that the rig forwards by the routes before the restart.
fn as_before(rig: &mut Rig) {
    assert_eq!(rig.leads("10.1.1.1"), Ok((0, 1)));
    assert_eq!(rig.leads("11.1.1.1"), Ok((1, 2)));
    assert_eq!(rig.leads("12.1.1.1"), Err(Verdict::Blackhole));
    assert_eq!(rig.leads("13.1.1.1"), Err(Verdict::UnreachableRoute));
    assert_eq!(rig.leads("192.0.2.7"), Ok((0, 7)));
    assert_eq!(rig.leads("192.0.2.8"), Err(Verdict::Unresolved));
    assert_eq!(rig.leads("2001:db8::1"), Ok((1, 3)));
    assert_eq!(rig.leads_from(2, "10.1.1.1"), Ok((1, 2)));
    assert_eq!(rig.leads("20.0.0.1"), Err(Verdict::NoRoute));
    let ways: Vec<_> = (0..4096).map(|flow| rig.resolve(0, "14.0.0.1", flow).1.port()).collect();
    let first = ways.iter().filter(|port| **port == Ok(0)).count();
    assert_eq!((first, ways.iter().filter(|port| **port == Ok(1)).count()), (1024, 3072));
}

#[test]
fn an_image_is_gone_by_at_once_and_with_the_numbers_of_now() {
    let mut before = with_neighbors(0);
    routes(&mut before);
    as_before(&mut before);
    let image = save(&before);
    let mut after = with_neighbors(40);
    adopt(&mut after, &image).unwrap();
    as_before(&mut after);
    assert!(after.ingresses.current().get(0).locals.holds_v4(0xc000_02fe));
    // Its tables are those of an image, so there is nothing to save.
    assert!(after.plane.save(&Renumbered(40)).unwrap().is_none());
}

#[test]
fn routes_that_come_take_the_images_place_with_the_same_hops() {
    let mut before = with_neighbors(0);
    routes(&mut before);
    let image = save(&before);
    let mut after = with_neighbors(7);
    adopt(&mut after, &image).unwrap();
    let hop = |rig: &mut Rig, address| rig.resolve(0, address, 0).0;
    let (ten, eleven) = (hop(&mut after, "10.1.1.1"), hop(&mut after, "11.1.1.1"));
    // The kernel reports the routes one by one. No change of routes is visible before the dump is
    // complete: neither the missing 11/8 nor the new routes. A new MAC of a neighbor is.
    after.route(MAIN, "10.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
    after.route(MAIN, "30.0.0.0/8", Some(&to(&[(2, Some("192.0.2.55"), 1)])));
    after.route(MAIN, "31.0.0.0/8", Some(&to(&[(2, Some("192.0.2.2"), 1)])));
    after.route(MAIN, "31.0.0.0/8", None);
    after.commit();
    as_before(&mut after);
    let neighbor = Neighbor { mac: Some(mac(0x55)), state: 2 };
    after.plane.neighbor(9, ip("192.0.2.55"), Some(&neighbor));
    after.plane.neighbor(8, ip("192.0.2.1"), Some(&neighbor));
    after.commit();
    assert_eq!(after.leads("10.1.1.1"), Ok((0, 0x55)));
    assert_eq!(after.leads("30.1.1.1"), Err(Verdict::NoRoute));
    after.plane.retire();
    after.commit();
    assert_eq!(hop(&mut after, "10.1.1.1"), ten, "the same way, the same hop");
    assert_eq!(after.leads("30.1.1.1"), Ok((1, 0x55)));
    for gone in ["11.1.1.1", "12.1.1.1", "14.0.0.1", "2001:db8::1"] {
        assert_eq!(after.leads(gone), Err(Verdict::NoRoute), "{gone}");
    }
    assert_eq!(after.leads_from(2, "10.1.1.1"), Err(Verdict::NoRoute));
    // The hops that only the image had are free after all workers have passed a quiescent state.
    assert_eq!(after.plane.hop_target(eleven), None);
    // The hops of a group's members are freed after that of the group.
    after.commit();
    assert_eq!(after.plane.hops().count(), 2, "one of 10/8, one of 30/8");
    assert!(after.plane.save(&Renumbered(7)).unwrap().is_some());
}

#[test]
fn routes_of_a_missing_interface_go_to_the_host() {
    let mut before = with_neighbors(0);
    before.route(MAIN, "10.0.0.0/8", Some(&to(&[(2, Some("192.0.2.2"), 1)])));
    // Interface 9 has no name after the restart, and 3 no name before it.
    before.route(MAIN, "11.0.0.0/8", Some(&to(&[(9, Some("192.0.2.2"), 1)])));
    let two = to(&[(1, Some("192.0.2.1"), 1), (9, Some("192.0.2.2"), 3)]);
    before.route(MAIN, "12.0.0.0/8", Some(&two));
    before.route(MAIN, "13.0.0.0/8", Some(&to(&[(1, Some("192.0.2.1"), 1)])));
    before.commit();
    let image = save(&before);
    let mut after = with_neighbors(3);
    adopt(&mut after, &image).unwrap();
    assert_eq!(after.leads("10.1.1.1"), Ok((1, 2)));
    assert_eq!(after.leads("11.1.1.1"), Err(Verdict::HostRoute));
    assert_eq!(after.leads("12.1.1.1"), Err(Verdict::HostRoute));
    assert_eq!(after.leads("13.1.1.1"), Ok((0, 1)));
}

#[test]
fn foreign_image_changes_nothing() {
    let mut before = with_neighbors(0);
    routes(&mut before);
    let mut rig = with_neighbors(0);
    let whole = save(&before);
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 4;
    assert!(matches!(adopt(&mut rig, &damaged), Err(AdoptError::Image(BadImage::Checksum { .. }))));
    // Images of other tables, and with invalid targets.
    let fib = fib::Fib::build(&fib::Rib::<u32>::new(), Choice::Auto, 1).unwrap();
    for ways in [&b"[]"[..], b"[{\"sideways\": 3}]", b"\xff"] {
        let mut writer = Writer::new();
        writer.table("254.v4", &fib).unwrap();
        writer.array("ways", ways);
        let refused = adopt(&mut rig, &writer.finish()).unwrap_err();
        match ways {
            b"[]" => assert!(matches!(refused, AdoptError::Image(BadImage::Missing { .. }))),
            _ => assert!(matches!(refused, AdoptError::Targets(_)), "{refused}"),
        }
    }
    assert!(adopt(&mut rig, &Writer::new().finish()).is_err());
    rig.commit();
    assert_eq!(rig.leads("10.1.1.1"), Err(Verdict::NoRoute));
    assert_eq!(rig.plane.hops().count(), 0);
    routes(&mut rig);
    as_before(&mut rig);
}
