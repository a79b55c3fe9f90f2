// -*- c-basic-offset: 4 -*-
#ifndef CLICK_FINGERPOSTIP6LOOKUP_HH
#define CLICK_FINGERPOSTIP6LOOKUP_HH
#include "elements/ip6/ip6routetable.hh"
#include "routes.hh"
#include <memory>
CLICK_DECLS

/*
=c

FingerpostIP6Lookup([ENGINE NAME,] ADDR/MASK [GATEWAY] OUTPUT, ...)

=s ip6

IPv6 routing by longest prefix match, in a few bytes a route

=d

Looks up the destination annotation of each packet, sets it to the route's gateway if there is one, and sends the packet
to the route's output; a packet without a route is dropped. See FingerpostIPLookup for ENGINE; here it is D18R/64, flat or
another that has IPv6. The last of several routes of a prefix applies, as with LookupIP6Route.

=h add, set write-only
Each adds a route, ADDR/MASK [GATEWAY] OUTPUT, in place of one of the same prefix.

=h remove write-only
Removes the route of ADDR/MASK.

=h ctrl write-only
Lines of C<add>, C<set> and C<remove>. All of them take effect at once, or none.

=h table read-only
The routes.

=h lookup "read with parameters"
The output and the gateway for an address; -1 without a route.

=h flush write-only
Removes all routes, at once.

=h stat read-only
The engine, its size, its arrays, and the routes by the number of loads of a lookup.

=a FingerpostIPLookup, LookupIP6Route */

class FingerpostIP6Lookup : public IP6RouteTable { public:

    FingerpostIP6Lookup() CLICK_COLD;
    ~FingerpostIP6Lookup() CLICK_COLD;

    const char *class_name() const		{ return "FingerpostIP6Lookup"; }
    const char *port_count() const		{ return "1/-"; }
    const char *processing() const		{ return PUSH; }

    int configure(Vector<String> &conf, ErrorHandler *errh) CLICK_COLD;
    void add_handlers() CLICK_COLD;

    int add_route(IP6Address addr, IP6Address mask, IP6Address gw, int port, ErrorHandler *errh);
    int remove_route(IP6Address addr, IP6Address mask, ErrorHandler *errh);
    String dump_routes();
    void push(int port, Packet *p);
#if HAVE_BATCH
    void push_batch(int port, PacketBatch *batch);
#endif

  private:

    std::unique_ptr<fingerpost::RouteTable> _routes;

    int change(const String &command, const String &route, ErrorHandler *errh);

    static int change_handler(const String &, Element *, void *, ErrorHandler *);
    static int ctrl_handler(const String &, Element *, void *, ErrorHandler *);
    static int lookup_handler(int operation, String &, Element *, const Handler *, ErrorHandler *);
    static int flush_handler(const String &, Element *, void *, ErrorHandler *);
    static String stat_handler(Element *, void *);

};

CLICK_ENDDECLS
#endif
