// -*- c-basic-offset: 4 -*-
#include <click/config.h>
#include <click/ip6address.hh>
#include "fingerpostip6lookup.hh"
#include "elements.hh"
#include <click/args.hh>
#include <click/error.hh>
#include <click/straccum.hh>
#include <vector>
CLICK_DECLS

using fingerpost::NextHop;

static int
to_prefix(IP6Address address, IP6Address mask, fp_prefix &prefix)
{
    const int length = mask.mask_to_prefix_len();
    address &= mask;
    prefix = fp_prefix();
    memcpy(prefix.address, address.data(), 16);
    prefix.length = length;
    prefix.family = AF_INET6;
    return length < 0 ? -EINVAL : 0;
}

static IP6Address
gateway(const NextHop &next_hop)
{
    return IP6Address(next_hop.gateway);
}

// Sets the annotation of a packet; returns the output, or -1.
static int
route_packet(Packet *p, const NextHop *next_hop)
{
    if (!next_hop)
	return -1;
    if (IP6Address gw = gateway(*next_hop))
	SET_DST_IP6_ANNO(p, gw);
    return next_hop->output;
}

FingerpostIP6Lookup::FingerpostIP6Lookup()
{
}

FingerpostIP6Lookup::~FingerpostIP6Lookup()
{
}

int
FingerpostIP6Lookup::configure(Vector<String> &conf, ErrorHandler *errh)
{
    _routes = fingerpost::new_table(AF_INET6, conf, errh);
    if (!_routes)
	return -EINVAL;
    _routes->begin();
    int r = 0;
    for (int i = 0; i < conf.size(); i++) {
	PrefixErrorHandler cerrh(errh, "argument " + String(i + 1) + ": ");
	if (change("add", conf[i], &cerrh) < 0)
	    r = -EINVAL;
    }
    return fingerpost::finish(*_routes, r, errh);
}

int
FingerpostIP6Lookup::add_route(IP6Address addr, IP6Address mask, IP6Address gw, int port, ErrorHandler *errh)
{
    fp_prefix prefix;
    const NextHop *former;
    if (to_prefix(addr, mask, prefix) < 0)
	return errh->error("the mask is no prefix length");
    return fingerpost::report(*_routes, _routes->add(prefix, NextHop(gw.data(), 16, port), true, &former), errh);
}

int
FingerpostIP6Lookup::remove_route(IP6Address addr, IP6Address mask, ErrorHandler *errh)
{
    fp_prefix prefix;
    const NextHop *former;
    int r = to_prefix(addr, mask, prefix);
    if (r >= 0)
	r = _routes->remove(prefix, 0, &former);
    if (r == -ENOENT || r == -EINVAL)
	return errh->error("route %<%s/%d%> not found", addr.unparse().c_str(), mask.mask_to_prefix_len());
    return fingerpost::report(*_routes, r, errh);
}

void
FingerpostIP6Lookup::push(int, Packet *p)
{
    IP6Address address = DST_IP6_ANNO(p);
    int port = route_packet(p, _routes->lookup6(click_current_cpu_id(), address.in6_addr().s6_addr));
    if (port >= 0)
	output(port).push(p);
    else
	p->kill();
}

#if HAVE_BATCH
void
FingerpostIP6Lookup::push_batch(int, PacketBatch *batch)
{
    static thread_local std::vector<uint8_t> addresses;
    static thread_local std::vector<const NextHop *> next_hops;
    addresses.clear();
    FOR_EACH_PACKET(batch, p) {
	IP6Address address = DST_IP6_ANNO(p);
	addresses.insert(addresses.end(), address.data(), address.data() + 16);
    }
    next_hops.resize(addresses.size() / 16);
    _routes->lookup_many6(click_current_cpu_id(), reinterpret_cast<const uint8_t (*)[16]>(addresses.data()),
			  next_hops.data(), next_hops.size());
    size_t i = 0;
    auto classify = [&](Packet *p) { return route_packet(p, next_hops[i++]); };
    CLASSIFY_EACH_PACKET(noutputs() + 1, classify, batch, checked_output_push_batch);
}
#endif

String
FingerpostIP6Lookup::dump_routes()
{
    StringAccum sa;
    _routes->visit([&](const fp_prefix &prefix, const NextHop &next_hop) {
	sa << IP6Address(prefix.address) << '/' << int(prefix.length) << '\t' << gateway(next_hop)
	   << '\t' << next_hop.output << '\n';
    });
    return sa.take_string();
}

// Makes one change. Click's own handlers of this name take "ADDR/MASK [GATEWAY] OUTPUT", and "ADDR/MASK" to remove.
int
FingerpostIP6Lookup::change(const String &command, const String &route, ErrorHandler *errh)
{
    if (command == "add" || command == "set")
	return add_route_handler(route, this, 0, errh);
    if (command == "remove")
	return remove_route_handler(route, this, 0, errh);
    return errh->error("bad command %<%s%>", command.c_str());
}

int
FingerpostIP6Lookup::change_handler(const String &str, Element *e, void *command, ErrorHandler *errh)
{
    return static_cast<FingerpostIP6Lookup *>(e)->change(static_cast<const char *>(command), str, errh);
}

int
FingerpostIP6Lookup::ctrl_handler(const String &str, Element *e, void *, ErrorHandler *errh)
{
    FingerpostIP6Lookup *t = static_cast<FingerpostIP6Lookup *>(e);
    t->_routes->begin();
    int r = 0;
    for (const String &line : fingerpost::lines(str)) {
	String route = line;
	String command = cp_shift_spacevec(route);
	if ((r = t->change(command, route, errh)) < 0)
	    break;
    }
    return fingerpost::finish(*t->_routes, r, errh);
}

int
FingerpostIP6Lookup::lookup_handler(int, String &s, Element *e, const Handler *, ErrorHandler *errh)
{
    FingerpostIP6Lookup *t = static_cast<FingerpostIP6Lookup *>(e);
    IP6Address address;
    if (!IP6AddressArg().parse(s, address, t))
	return errh->error("expected IPv6 address");
    const NextHop *next_hop = t->_routes->lookup6(click_current_cpu_id(), address.in6_addr().s6_addr);
    s = String(next_hop ? next_hop->output : -1);
    if (next_hop && gateway(*next_hop))
	s += " " + gateway(*next_hop).unparse();
    return 0;
}

int
FingerpostIP6Lookup::flush_handler(const String &, Element *e, void *, ErrorHandler *errh)
{
    FingerpostIP6Lookup *t = static_cast<FingerpostIP6Lookup *>(e);
    return fingerpost::report(*t->_routes, t->_routes->clear(), errh);
}

String
FingerpostIP6Lookup::stat_handler(Element *e, void *)
{
    return static_cast<FingerpostIP6Lookup *>(e)->_routes->statistics().c_str();
}

void
FingerpostIP6Lookup::add_handlers()
{
    add_write_handler("add", change_handler, const_cast<char *>("add"));
    add_write_handler("set", change_handler, const_cast<char *>("set"));
    add_write_handler("remove", change_handler, const_cast<char *>("remove"));
    add_write_handler("ctrl", ctrl_handler, 0);
    add_read_handler("table", table_handler, 0, Handler::f_expensive);
    set_handler("lookup", Handler::f_read | Handler::f_read_param, lookup_handler);
    add_write_handler("flush", flush_handler, 0, Handler::BUTTON);
    add_read_handler("stat", stat_handler, 0, Handler::f_expensive);
}

CLICK_ENDDECLS
ELEMENT_REQUIRES(userlevel ip6 IP6RouteTable)
EXPORT_ELEMENT(FingerpostIP6Lookup)
