-- handshake: a source that goes on after the server's answer has received it, and has its address.
--
-- The list `services` has the TCP port that each protected address serves; nothing behind a prefix
-- is any port. A SYN to it is forwarded with the priority of a request, without a decision about
-- its flow: in a flood of forged sources each costs a packet of the request bandwidth, and no
-- grant. The server's answer goes to the source address of the SYN; a packet without SYN from the
-- same port proves that a host has that address, and is granted.
--
-- Packets for other protocols and ports are declined, by protocol or port and for seconds: their
-- source may be forged, and the owner of the address may be about to request a service. An
-- unrequested answer, as in reflections, is dropped, and its flow is not declined.
--
-- The policy does not look into sequence numbers: an attacker that forges both packets, seconds
-- apart, for each of its sources, gets its grants. Flows that were granted before ask for renewal,
-- and get it for any packet, because that packet may be forged too.
--
-- Gates can verify sources themselves (`[admission] proof = "syn-cookie"`) while their tables fill
-- up. Then the first SYN of a source does not reach this policy; the second one, answered or not,
-- and later packets do. This policy always applies and decides which flows are granted; the cookie
-- decides which flows have a table entry meanwhile.

local services = list "services"
local requests = store(262144)
local terms = { rate = 1024, expire = 300 }

function decide(p)
    if p.renewal then
        return grant(terms)
    end
    if p.protocol ~= 6 then
        return decline { expire = 10, protocol = p.protocol }
    end
    if not p.tcp_flags then
        -- A fragment, which carries no information on its connection.
        return pass()
    end
    local port = p:dst_in(services)
    if port ~= true and p.dst_port ~= port then
        return decline { expire = 10, protocol = 6, port = p.dst_port }
    end
    local source = p.src .. " " .. p.src_port .. " " .. p.dst
    if p.syn then
        requests:set(source, now())
        return pass()
    end
    local since = requests:get(source)
    if since and now() - since < 60 then
        return grant(terms)
    end
    -- SYN and ACK: an unrequested answer.
    if p.tcp_flags & 0x02 ~= 0 then
        return nil
    end
    -- The connection may be older than this policy: its first packets are forwarded as requests.
    return pass()
end
