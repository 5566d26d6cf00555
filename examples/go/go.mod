module digits

go 1.17
