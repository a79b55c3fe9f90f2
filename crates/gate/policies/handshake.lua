-- handshake: who goes on after the server's answer has heard it, and is where he says he is.
--
-- The list `services` has the TCP port that each protected address serves; nothing behind a prefix
-- is any port. A SYN to it is let through as the request that it is, and nothing is said of its flow:
-- under a flood of forged sources each costs a packet of the few that may ask, and no grant. The answer
-- goes to the address that was written on it; a packet without SYN from the same port shows that somebody
-- has it, and is granted. Who wants what is not served, or speaks without having asked, is
-- declined: reflections among them.
--
-- It does not look into sequence numbers: who forges both packets, seconds apart, for each of
-- his sources, gets his grants. Flows that were granted before ask for renewal, and get it.
--
-- Gates can have sources answer themselves (`[admission] proof = "syn-cookie"`), while their tables
-- fill up. Then first SYNs do not come here; second ones do, answered or not, and so does what follows.
-- This policy holds at all times and says who is granted; the cookie says who has an entry meanwhile.

local services = list "services"
local asked = store(262144)
local terms = { rate = 1024, expire = 300 }

function decide(p)
    if p.protocol ~= 6 then
        return decline(600)
    end
    if p.renewal then
        return grant(terms)
    end
    if not p.tcp_flags then
        -- A fragment, which says nothing of whose it is.
        return pass()
    end
    local port = p:dst_in(services)
    if port ~= true and p.dst_port ~= port then
        return decline(60)
    end
    local who = p.src .. " " .. p.src_port .. " " .. p.dst
    if p.syn then
        asked:set(who, now())
        return pass()
    end
    local since = asked:get(who)
    if since and now() - since < 60 then
        return grant(terms)
    end
    -- SYN and ACK: an answer to what nobody has asked.
    if p.tcp_flags & 0x02 ~= 0 then
        return decline(600)
    end
    -- Of a connection from before this policy was loaded, perhaps: its first packets may ask.
    return pass()
end
