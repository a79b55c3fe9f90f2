-- lists: a source on the list `allow` is granted, one on `deny` is declined, and all others get the
-- program `web`.
--
-- A line of either list is a prefix; in `allow` a rate in KiB a second follows it. The lists match
-- addresses, so no forged packet can cause a decision.

local allow, deny = list "allow", list "deny"

function decide(p)
    local rate = p:src_in(allow)
    if rate then
        return grant { rate = rate == true and 1024 or rate }
    end
    if p:src_in(deny) then
        return decline { expire = 600, proven = true }
    end
    return web { rate = 512, expire = 300 }
end
