//! `loligo ublk`: an image as a block device of this machine, by the kernel's ublk driver.
