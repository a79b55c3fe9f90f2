-- rates: each source gets the rate of the longest prefix on the list `rates` that has its address,
-- in KiB a second; 0 declines. A source on no prefix gets 64 KiB a second.
--
-- The list matches addresses, so no forged packet can cause a decision.

local rates = list "rates"

function decide(p)
    local rate = p:src_in(rates) or 64
    if rate == 0 then
        return decline { expire = 600, proven = true }
    end
    return grant { rate = rate, expire = 120 }
end
