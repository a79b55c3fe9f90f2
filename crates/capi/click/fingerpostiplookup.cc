// -*- c-basic-offset: 4 -*-
#include <click/config.h>
#include "fingerpostiplookup.hh"
#include "elements.hh"
#include <click/args.hh>
#include <click/error.hh>
#include <click/straccum.hh>
#include <vector>
CLICK_DECLS

using fingerpost::NextHop;

static fp_prefix
to_prefix(const IPRoute &route)
{
    fp_prefix prefix = {};
    memcpy(prefix.address, route.addr.data(), 4);
    prefix.length = route.prefix_len();
    prefix.family = AF_INET;
    return prefix;
}

static NextHop
to_next_hop(const IPRoute &route)
{
    return NextHop(route.gw.data(), 4, route.port);
}

static IPAddress
gateway(const NextHop &next_hop)
{
    return IPAddress(next_hop.gateway);
}

static IPRoute
to_route(IPAddress address, IPAddress mask, const NextHop &next_hop)
{
    return IPRoute(address, mask, gateway(next_hop), next_hop.output);
}

FingerpostIPLookup::FingerpostIPLookup()
{
}

FingerpostIPLookup::~FingerpostIPLookup()
{
}

int
FingerpostIPLookup::configure(Vector<String> &conf, ErrorHandler *errh)
{
    _routes = fingerpost::new_table(AF_INET, conf, errh);
    if (!_routes)
	return -EINVAL;
    _routes->begin();
    int r = IPRouteTable::configure(conf, errh);
    return fingerpost::finish(*_routes, r, errh);
}

int
FingerpostIPLookup::add_route(const IPRoute &route, bool allow_replace, IPRoute *replaced_route, ErrorHandler *errh)
{
    if (route.prefix_len() < 0)
	return errh->error("%s: the mask is no prefix length", route.unparse_addr().c_str());
    const NextHop *former;
    int r = _routes->add(to_prefix(route), to_next_hop(route), allow_replace, &former);
    if (former && replaced_route)
	*replaced_route = to_route(route.addr, route.mask, *former);
    return fingerpost::report(*_routes, r, errh);
}

int
FingerpostIPLookup::remove_route(const IPRoute &route, IPRoute *removed_route, ErrorHandler *errh)
{
    if (route.prefix_len() < 0)
	return -ENOENT;
    const NextHop expected = to_next_hop(route);
    const NextHop *former;
    int r = _routes->remove(to_prefix(route), route.port < 0 ? 0 : &expected, &former);
    if (r >= 0 && removed_route)
	*removed_route = to_route(route.addr, route.mask, *former);
    return fingerpost::report(*_routes, r, errh);
}

int
FingerpostIPLookup::lookup_route(IPAddress addr, IPAddress &gw) const
{
    const NextHop *next_hop = _routes->lookup4(click_current_cpu_id(), addr.addr());
    if (!next_hop)
	return -1;
    gw = gateway(*next_hop);
    return next_hop->output;
}

#if HAVE_BATCH
void
FingerpostIPLookup::push_batch(int, PacketBatch *batch)
{
    static thread_local std::vector<uint32_t> addresses;
    static thread_local std::vector<const NextHop *> next_hops;
    addresses.clear();
    FOR_EACH_PACKET(batch, p)
	addresses.push_back(p->dst_ip_anno().addr());
    next_hops.resize(addresses.size());
    _routes->lookup_many4(click_current_cpu_id(), addresses.data(), next_hops.data(), addresses.size());
    size_t i = 0;
    auto classify = [&](Packet *p) {
	const NextHop *next_hop = next_hops[i++];
	if (!next_hop)
	    return -1;
	if (IPAddress gw = gateway(*next_hop))
	    p->set_dst_ip_anno(gw);
	return next_hop->output;
    };
    CLASSIFY_EACH_PACKET(noutputs() + 1, classify, batch, checked_output_push_batch);
}
#endif

String
FingerpostIPLookup::dump_routes()
{
    StringAccum sa;
    _routes->visit([&](const fp_prefix &prefix, const NextHop &next_hop) {
	IPAddress mask = IPAddress::make_prefix(prefix.length);
	to_route(IPAddress(prefix.address), mask, next_hop).unparse(sa, true) << '\n';
    });
    return sa.take_string();
}

int
FingerpostIPLookup::ctrl_handler(const String &str, Element *e, void *thunk, ErrorHandler *errh)
{
    FingerpostIPLookup *t = static_cast<FingerpostIPLookup *>(e);
    StringAccum sa;
    for (const String &line : fingerpost::lines(str))
	sa << line << '\n';
    t->_routes->begin();
    int r = IPRouteTable::ctrl_handler(sa.take_string(), e, thunk, errh);
    return fingerpost::finish(*t->_routes, r, errh);
}

int
FingerpostIPLookup::flush_handler(const String &, Element *e, void *, ErrorHandler *errh)
{
    FingerpostIPLookup *t = static_cast<FingerpostIPLookup *>(e);
    return fingerpost::report(*t->_routes, t->_routes->clear(), errh);
}

String
FingerpostIPLookup::stat_handler(Element *e, void *)
{
    return static_cast<FingerpostIPLookup *>(e)->_routes->statistics().c_str();
}

void
FingerpostIPLookup::add_handlers()
{
    IPRouteTable::add_handlers();
    add_write_handler("ctrl", ctrl_handler, 0);
    add_write_handler("flush", flush_handler, 0, Handler::BUTTON);
    add_read_handler("stat", stat_handler, 0, Handler::f_expensive);
}

CLICK_ENDDECLS
ELEMENT_REQUIRES(userlevel IPRouteTable)
EXPORT_ELEMENT(FingerpostIPLookup)
