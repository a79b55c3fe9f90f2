-- reputation: an autonomous system whose hosts do what nobody needs is trusted less.
--
-- The list `asn` has the number of the system behind each prefix. A request to a port that
-- nothing listens on costs its system a point, of which one comes back every ten seconds; who has
-- lost more than 50 is declined for a while, and the rate falls with what is lost before that.

local asn = list "asn"
local points, seen = store(65536), store(65536)
local open = { [22] = true, [25] = true, [80] = true, [443] = true }

function decide(p)
    local system = p:src_in(asn) or 0
    local lost, last = points:get(system) or 0, seen:get(system) or now()
    lost = math.max(0, lost - (now() - last) / 10)
    local wrong = p.protocol == 6 and not open[p.dst_port or 0]
    if wrong then
        lost = lost + 1
    end
    points:set(system, lost)
    seen:set(system, now())
    if wrong or lost > 50 then
        return decline(lost > 50 and 600 or 60)
    end
    return grant { rate = math.floor(2048 / (1 + lost / 10)), expire = 60 }
end
