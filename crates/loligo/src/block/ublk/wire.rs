//! The words between a ublk server and the kernel (`include/uapi/linux/ublk_cmd.h`,
//! `Documentation/block/ublk.rst`, Linux 6.5 and later): numbers in the machine's byte order.
//!
//! ```text
//! io_uring command of 128 bytes: ... cmd_op, ..., cmd[80]
//!   to /dev/ublk-control   cmd = control (32 bytes): device, queue, length and address of a buffer
//!   to /dev/ublkcN         cmd = io (16 bytes): queue, tag, result of the request before
//! /dev/ublkcN, mapped      24 bytes a tag: what the request of that tag is
//! /dev/ublkcN, read, written at DATA + (queue << 41 | tag << 25 | byte): the request's own bytes
//! ```

/// Where devices are asked for.
pub(super) const CONTROL_PATH: &str = "/dev/ublk-control";

/// Bytes of a control command, of a device's description and of its parameters.
pub(super) const CONTROL_LEN: usize = 32;
pub(super) const INFO_LEN: usize = 64;
pub(super) const PARAMS_LEN: usize = 60;
/// Bytes of a command of a queue, and of a request's description.
pub(super) const IO_LEN: usize = 16;
pub(super) const DESCRIPTOR_LEN: usize = 24;

/// Requests of one queue that the layout of the mapping leaves room for.
pub(super) const DEPTH_LIMIT: u16 = 4096;
/// Where requests' bytes begin, and how tag and queue are in the offset.
const DATA: u64 = 0x8000_0000;
const TAG_SHIFT: u32 = 25;
const QUEUE_SHIFT: u32 = 41;
/// Bytes of the largest request there is room for.
pub(super) const REQUEST_LIMIT: u32 = 1 << TAG_SHIFT;

/// Bytes of a sector, whatever the device's blocks are.
pub(super) const SECTOR: u64 = 512;

/// Commands, encoded as ioctls are: direction, length of the argument, letter, number.
pub(super) mod op {
    const READ: u32 = 2;
    const READ_WRITE: u32 = 3;

    const fn code(direction: u32, len: usize, number: u32) -> u32 {
        direction << 30 | (len as u32) << 16 | (b'u' as u32) << 8 | number
    }

    const fn control(direction: u32, number: u32) -> u32 {
        code(direction, super::CONTROL_LEN, number)
    }

    pub(crate) const GET_DEV_INFO: u32 = control(READ, 0x02);
    pub(crate) const ADD_DEV: u32 = control(READ_WRITE, 0x04);
    pub(crate) const DEL_DEV: u32 = control(READ_WRITE, 0x05);
    pub(crate) const START_DEV: u32 = control(READ_WRITE, 0x06);
    pub(crate) const STOP_DEV: u32 = control(READ_WRITE, 0x07);
    pub(crate) const SET_PARAMS: u32 = control(READ_WRITE, 0x08);
    pub(crate) const GET_PARAMS: u32 = control(READ, 0x09);
    pub(crate) const GET_FEATURES: u32 = control(READ, 0x13);

    pub(crate) const FETCH: u32 = code(READ_WRITE, super::IO_LEN, 0x20);
    pub(crate) const COMMIT_AND_FETCH: u32 = code(READ_WRITE, super::IO_LEN, 0x21);
}

/// What a device and its driver can do.
pub(super) mod feature {
    /// Commands are encoded as above.
    pub(crate) const IOCTL_ENCODE: u64 = 1 << 6;
    /// Requests' bytes are read from and written to the device by us.
    pub(crate) const USER_COPY: u64 = 1 << 7;
}

/// States of a device.
pub(super) mod state {
    pub(crate) const DEAD: u16 = 0;
    pub(crate) const LIVE: u16 = 1;
    pub(crate) const QUIESCED: u16 = 2;
}

/// Kinds of requests.
pub(super) mod kind {
    pub(crate) const READ: u8 = 0;
    pub(crate) const WRITE: u8 = 1;
    pub(crate) const FLUSH: u8 = 2;
    pub(crate) const DISCARD: u8 = 3;
    pub(crate) const WRITE_ZEROES: u8 = 5;
}

const ATTRIBUTE_READ_ONLY: u32 = 1;
const PARAMS_BASIC: u32 = 1;
const PARAMS_DISCARD: u32 = 2;

/// A control command's own bytes. `buffer` stays valid until the command has completed.
pub(super) fn control(device: u32, buffer: &mut [u8], data: u64) -> [u8; 80] {
    let mut cmd = [0; 80];
    cmd[0..4].copy_from_slice(&device.to_ne_bytes());
    // For no queue.
    cmd[4..6].copy_from_slice(&u16::MAX.to_ne_bytes());
    if !buffer.is_empty() {
        cmd[6..8].copy_from_slice(&(buffer.len() as u16).to_ne_bytes());
        let address = buffer.as_mut_ptr().expose_provenance() as u64;
        cmd[8..16].copy_from_slice(&address.to_ne_bytes());
    }
    cmd[16..24].copy_from_slice(&data.to_ne_bytes());
    cmd
}

/// A queue's command: the result of what the tag asked for before, if it did.
pub(super) fn io(queue: u16, tag: u16, result: i32) -> [u8; 80] {
    let mut cmd = [0; 80];
    cmd[0..2].copy_from_slice(&queue.to_ne_bytes());
    cmd[2..4].copy_from_slice(&tag.to_ne_bytes());
    cmd[4..8].copy_from_slice(&result.to_ne_bytes());
    cmd
}

/// Where a request's bytes are in the device's file.
pub(super) fn data_offset(queue: u16, tag: u16) -> u64 {
    DATA + (u64::from(queue) << QUEUE_SHIFT | u64::from(tag) << TAG_SHIFT)
}

/// What a device is (`ublksrv_ctrl_dev_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) max_request_bytes: u32,
    /// Its number; u32::MAX asks for any.
    pub(super) device: u32,
    /// Who serves it.
    pub(super) pid: i32,
    pub(super) flags: u64,
}

impl DeviceInfo {
    pub(super) fn encode(&self) -> [u8; INFO_LEN] {
        let mut b = [0; INFO_LEN];
        b[0..2].copy_from_slice(&self.queues.to_ne_bytes());
        b[2..4].copy_from_slice(&self.depth.to_ne_bytes());
        b[4..6].copy_from_slice(&self.state.to_ne_bytes());
        b[8..12].copy_from_slice(&self.max_request_bytes.to_ne_bytes());
        b[12..16].copy_from_slice(&self.device.to_ne_bytes());
        b[16..20].copy_from_slice(&self.pid.to_ne_bytes());
        b[24..32].copy_from_slice(&self.flags.to_ne_bytes());
        b
    }

    pub(super) fn decode(b: &[u8; INFO_LEN]) -> DeviceInfo {
        DeviceInfo {
            queues: u16::from_ne_bytes(part(b, 0)),
            depth: u16::from_ne_bytes(part(b, 2)),
            state: u16::from_ne_bytes(part(b, 4)),
            max_request_bytes: u32::from_ne_bytes(part(b, 8)),
            device: u32::from_ne_bytes(part(b, 12)),
            pid: i32::from_ne_bytes(part(b, 16)),
            flags: u64::from_ne_bytes(part(b, 24)),
        }
    }
}

/// What the kernel is told of a device (`ublk_params`: basic, and discard unless read-only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Params {
    pub(super) read_only: bool,
    /// Blocks, powers of two: the smallest request, the smallest that is no part of a larger one,
    /// what requests should be multiples of.
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) max_sectors: u32,
    pub(super) sectors: u64,
    pub(super) discard_granularity: u32,
    pub(super) max_discard_sectors: u32,
    pub(super) max_zeroes_sectors: u32,
}

impl Params {
    pub(super) fn encode(&self) -> [u8; PARAMS_LEN] {
        let mut b = [0; PARAMS_LEN];
        let kinds = if self.read_only { PARAMS_BASIC } else { PARAMS_BASIC | PARAMS_DISCARD };
        let attributes = if self.read_only { ATTRIBUTE_READ_ONLY } else { 0 };
        b[0..4].copy_from_slice(&(PARAMS_LEN as u32).to_ne_bytes());
        b[4..8].copy_from_slice(&kinds.to_ne_bytes());
        b[8..12].copy_from_slice(&u32::to_ne_bytes(attributes));
        b[12..16].copy_from_slice(&[
            self.logical_shift,
            self.physical_shift,
            self.optimal_shift,
            self.physical_shift,
        ]);
        b[16..20].copy_from_slice(&self.max_sectors.to_ne_bytes());
        b[24..32].copy_from_slice(&self.sectors.to_ne_bytes());
        if !self.read_only {
            b[44..48].copy_from_slice(&self.discard_granularity.to_ne_bytes());
            b[48..52].copy_from_slice(&self.max_discard_sectors.to_ne_bytes());
            b[52..56].copy_from_slice(&self.max_zeroes_sectors.to_ne_bytes());
            // One range a request.
            b[56..58].copy_from_slice(&1u16.to_ne_bytes());
        }
        b
    }
}

/// The size of a device in sectors, from its encoded parameters.
pub(super) fn sectors_of(params: &[u8; PARAMS_LEN]) -> u64 {
    u64::from_ne_bytes(part(params, 24))
}

/// A request (`ublksrv_io_desc`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// [`kind`]
    pub(super) kind: u8,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
}

impl Descriptor {
    /// Bytes it is about.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.sectors) * SECTOR
    }

    pub(super) fn decode(b: &[u8; DESCRIPTOR_LEN]) -> Descriptor {
        let kind_and_flags = u32::from_ne_bytes(part(b, 0));
        Descriptor {
            kind: (kind_and_flags & 0xff) as u8,
            sectors: u32::from_ne_bytes(part(b, 4)),
            first_sector: u64::from_ne_bytes(part(b, 8)),
        }
    }
}

/// Bytes of the mapping of a queue's descriptors, and its offset in the device's file.
pub(super) fn descriptors(queue: u16, depth: u16, page: usize) -> (usize, u64) {
    let bytes = |depth: u16| (usize::from(depth) * DESCRIPTOR_LEN).next_multiple_of(page);
    (bytes(depth), u64::from(queue) * bytes(DEPTH_LIMIT) as u64)
}

fn part<const LEN: usize>(b: &[u8], at: usize) -> [u8; LEN] {
    std::array::from_fn(|i| b[at + i])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers as a C compiler makes them from the kernel's header.
    #[test]
    fn commands_are_the_kernel_s() {
        assert_eq!(op::ADD_DEV, 0xc020_7504);
        assert_eq!(op::DEL_DEV, 0xc020_7505);
        assert_eq!(op::START_DEV, 0xc020_7506);
        assert_eq!(op::STOP_DEV, 0xc020_7507);
        assert_eq!(op::SET_PARAMS, 0xc020_7508);
        assert_eq!(op::GET_PARAMS, 0x8020_7509);
        assert_eq!(op::GET_DEV_INFO, 0x8020_7502);
        assert_eq!(op::GET_FEATURES, 0x8020_7513);
        assert_eq!(op::FETCH, 0xc010_7520);
        assert_eq!(op::COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!((data_offset(0, 0), data_offset(1, 3)), (0x8000_0000, 0x200_8600_0000));
    }

    #[test]
    fn commands_have_their_fields_where_the_kernel_looks() {
        let mut buffer = [0; 64];
        let address = buffer.as_ptr() as u64;
        let cmd = control(7, &mut buffer, 9);
        assert_eq!(cmd[..8], [7, 0, 0, 0, 255, 255, 64, 0]);
        assert_eq!(cmd[8..16], address.to_ne_bytes());
        assert_eq!(cmd[16..24], 9u64.to_ne_bytes());
        assert!(cmd[24..].iter().all(|b| *b == 0));
        let cmd = control(7, &mut [], 0);
        assert!(cmd[6..].iter().all(|b| *b == 0));
        assert_eq!(io(2, 0x103, -5)[..8], [2, 0, 3, 1, 251, 255, 255, 255]);
        assert!(io(2, 3, -5)[8..].iter().all(|b| *b == 0));
    }

    #[test]
    fn a_device_s_description_comes_back() {
        let info = DeviceInfo {
            queues: 2,
            depth: 128,
            state: state::LIVE,
            max_request_bytes: 1 << 20,
            device: 5,
            pid: 4711,
            flags: feature::USER_COPY,
        };
        let bytes = info.encode();
        assert_eq!(
            bytes[..20],
            [2, 0, 128, 0, 1, 0, 0, 0, 0, 0, 16, 0, 5, 0, 0, 0, 0x67, 0x12, 0, 0]
        );
        assert_eq!(DeviceInfo::decode(&bytes), info);
    }

    #[test]
    fn parameters_have_their_fields_where_the_kernel_looks() {
        let mut params = Params {
            read_only: false,
            logical_shift: 9,
            physical_shift: 12,
            optimal_shift: 22,
            max_sectors: 8192,
            sectors: 0x1_0000_0000,
            discard_granularity: 65536,
            max_discard_sectors: 0x20_0000,
            max_zeroes_sectors: 0x30_0000,
        };
        let b = params.encode();
        assert_eq!(b[..16], [60, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9, 12, 22, 12]);
        assert_eq!(b[16..24], [0, 32, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sectors_of(&b), 0x1_0000_0000);
        assert_eq!(b[32..44], [0; 12]);
        assert_eq!(b[44..60], [0, 0, 1, 0, 0, 0, 0x20, 0, 0, 0, 0x30, 0, 1, 0, 0, 0]);
        params.read_only = true;
        let b = params.encode();
        assert_eq!(b[4..12], [1, 0, 0, 0, 1, 0, 0, 0]);
        assert!(b[40..].iter().all(|b| *b == 0));
    }

    #[test]
    fn requests_are_understood() {
        let mut b = [0; DESCRIPTOR_LEN];
        b[..4].copy_from_slice(&(0x2000 << 8 | 1u32).to_ne_bytes());
        b[4..8].copy_from_slice(&8u32.to_ne_bytes());
        b[8..16].copy_from_slice(&77u64.to_ne_bytes());
        let wanted = Descriptor { kind: kind::WRITE, sectors: 8, first_sector: 77 };
        assert_eq!(Descriptor::decode(&b), wanted);
        assert_eq!(descriptors(0, 128, 4096), (4096, 0));
        assert_eq!(descriptors(3, 4096, 4096), (98304, 3 * 98304));
    }
}
