-- rates: everybody gets the rate of the longest prefix on the list `rates` that has its
-- address, in KiB a second; 0 declines. Who is on no prefix gets a little.

local rates = list "rates"

function decide(p)
    local rate = p:src_in(rates) or 64
    if rate == 0 then
        return decline(600)
    end
    return grant { rate = rate, expire = 120 }
end
