// -*- c-basic-offset: 4 -*-
#ifndef CLICK_FINGERPOSTIPLOOKUP_HH
#define CLICK_FINGERPOSTIPLOOKUP_HH
#include "elements/ip/iproutetable.hh"
#include "routes.hh"
#include <memory>
CLICK_DECLS

/*
=c

FingerpostIPLookup([ENGINE NAME,] ADDR/MASK [GATEWAY] OUTPUT, ...)

=s iproute

IPv4 routing by longest prefix match, in a few bytes a route

=d

Looks up the destination annotation of each packet, sets it to the route's gateway if there is one, and sends the packet
to the route's output; a packet without a route is dropped. The whole table of the Internet takes a few megabytes, and a
change some microseconds, beside lookups on other threads. FastClick's batches are looked up together, several times as
fast.

ENGINE is the layout of the table, such as D18R (DXR with 18 direct bits) or flat; the default, auto, is the fastest one
that fits half of the second-level cache. Each of several routes of a prefix but the first is left out, with a warning.

=h add, set, remove, ctrl, table, lookup
As those of the other elements of this interface (IPRouteTable). All lines of C<ctrl> take effect at once, or none.

=h flush write-only
Removes all routes, at once.

=h stat read-only
The engine, its size, its arrays, and the routes by the number of loads of a lookup.

=a IPRouteTable, RadixIPLookup, FingerpostIP6Lookup */

class FingerpostIPLookup : public IPRouteTable { public:

    FingerpostIPLookup() CLICK_COLD;
    ~FingerpostIPLookup() CLICK_COLD;

    const char *class_name() const		{ return "FingerpostIPLookup"; }
    const char *port_count() const		{ return "1/-"; }
    const char *processing() const		{ return PUSH; }

    int configure(Vector<String> &conf, ErrorHandler *errh) CLICK_COLD;
    void add_handlers() CLICK_COLD;

    int add_route(const IPRoute &route, bool allow_replace, IPRoute *replaced_route, ErrorHandler *errh);
    int remove_route(const IPRoute &route, IPRoute *removed_route, ErrorHandler *errh);
    int lookup_route(IPAddress addr, IPAddress &gw) const;
    String dump_routes();
#if HAVE_BATCH
    void push_batch(int port, PacketBatch *batch);
#endif

  private:

    std::unique_ptr<fingerpost::RouteTable> _routes;

    static int ctrl_handler(const String &, Element *, void *, ErrorHandler *);
    static int flush_handler(const String &, Element *, void *, ErrorHandler *);
    static String stat_handler(Element *, void *);

};

CLICK_ENDDECLS
#endif
