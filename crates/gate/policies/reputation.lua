-- reputation: an autonomous system whose hosts send useless requests gets lower rates.
--
-- The list `asn` has the number of the system behind each prefix. A request to a port that
-- nothing listens on costs its system a point; one comes back every second. The fewer points a
-- system has left, the lower is the rate that new flows from it begin with, down to a sixth.
--
-- Sources of requests may be forged. So points are capped, a minute forgives all of them, no
-- system is declined for them, and a flow that is granted keeps at least the rate that it has. A
-- request to a closed port is declined for that port only.

local asn = list "asn"
local points, seen = store(65536), store(65536)
local rates = store(262144)
local open = { [22] = true, [25] = true, [80] = true, [443] = true }
local full, most = 2048, 50

function decide(p)
    local system = p:src_in(asn) or 0
    local lost, last = points:get(system) or 0, seen:get(system) or now()
    lost = math.max(0, lost - (now() - last))
    local flow = p.src .. " " .. p.dst
    local rate = math.floor(full / (1 + lost / 10))
    if p.renewal then
        rate = math.max(rate, rates:get(flow) or full)
    elseif p.protocol == 6 and p.dst_port and not open[p.dst_port] then
        points:set(system, math.min(most, lost + 1))
        seen:set(system, now())
        return decline { expire = 10, protocol = 6, port = p.dst_port }
    end
    rates:set(flow, rate)
    return grant { rate = rate, expire = 60 }
end
