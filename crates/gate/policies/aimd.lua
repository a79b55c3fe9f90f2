-- aimd: additive increase, multiplicative decrease (Chiu, Jain, 1989), by the marks of RED.
--
-- A flow begins with 256 KiB a second. With each renewal its rate grows by 64, or is halved if the
-- request has a congestion mark from its path behind the gate. A rate is remembered from the first
-- renewal on, so that sources that come only once evict no other rate.

local rates = store(262144)
local first, step, least, most = 256, 64, 32, 8192

function decide(p)
    local flow = p.src .. " " .. p.dst
    local rate = rates:get(flow) or first
    if p.renewal then
        rate = p.congested and rate // 2 or rate + step
        rate = math.max(least, math.min(most, rate))
        rates:set(flow, rate)
    end
    return grant { rate = rate, expire = 30, renewal = 5, step = 5 }
end
